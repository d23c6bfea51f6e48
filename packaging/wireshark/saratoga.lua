-- Saratoga version 1 (draft-wood-tsvwg-saratoga-22) for Wireshark and tshark.
-- Copy into the personal Lua plugin folder (Help, About, Folders), or: tshark -X lua_script:saratoga.lua

local saratoga = Proto("saratoga", "Saratoga")

local TYPES = { [0] = "BEACON", "REQUEST", "METADATA", "DATA", "STATUS" }
local REQUESTS = { [0] = "none", "get", "put", "take", "give", "delete", "getdir" }
local KINDS = { [0] = "file", "directory", "bundle", "stream" }
local SUMS = { [0] = "none", "CRC-32c", "MD5", "SHA-1" }
local WIDTHS = { [0] = 2, 4, 8, 16 }
local WIDTH_NAMES = { [0] = "16 bits", "32 bits", "64 bits", "128 bits" }
local WILLING = { [0] = "cannot", "invalid", "capable", "willing" }
local CODES = {
  [0] = "ok", "unspecified error", "cannot send", "cannot receive", "file not found",
  "access denied", "unknown session", "file not deleted", "file too long",
  "descriptor mismatch", "unexpected frame type", "unknown request type", "terminated",
  "flags of DATA changed", "no longer interested", "file in use", "METADATA required",
  "unexpected error STATUS", "sender silent",
}

local f = {
  version = ProtoField.uint32("saratoga.version", "Version", base.DEC, nil, 0xe0000000),
  type = ProtoField.uint32("saratoga.type", "Type", base.DEC, TYPES, 0x1f000000),
  width = ProtoField.uint32("saratoga.width", "Descriptor", base.DEC, WIDTH_NAMES, 0x00c00000),
  streams = ProtoField.bool("saratoga.streams", "Streams", 32, nil, 0x00100000),
  send = ProtoField.uint32("saratoga.send", "Sends", base.DEC, WILLING, 0x000c0000),
  receive = ProtoField.uint32("saratoga.receive", "Receives", base.DEC, WILLING, 0x00030000),
  lite = ProtoField.bool("saratoga.udp_lite", "UDP-Lite", 32, nil, 0x00008000),
  late = ProtoField.bool("saratoga.late_checksum", "Takes the checksum last (bentpipe)", 32, nil, 0x00004000),
  session = ProtoField.uint32("saratoga.session", "Session", base.HEX),
  request = ProtoField.uint32("saratoga.request", "Request", base.DEC, REQUESTS, 0x000000ff),
  path = ProtoField.string("saratoga.path", "Path"),
  auth = ProtoField.bytes("saratoga.authentication", "Authentication"),
  free = ProtoField.bytes("saratoga.free", "Free space (KiB)"),
  eid = ProtoField.string("saratoga.name", "Name"),
  kind = ProtoField.uint32("saratoga.kind", "Kind", base.DEC, KINDS, 0x00300000),
  ended = ProtoField.bool("saratoga.ended", "Ended", 32, nil, 0x00080000),
  unreliable = ProtoField.bool("saratoga.unreliable", "May be unreliable", 32, nil, 0x00040000),
  sumlen = ProtoField.uint32("saratoga.sumlen", "Checksum words", base.DEC, nil, 0x000000f0),
  sumtype = ProtoField.uint32("saratoga.sumtype", "Checksum type", base.DEC, SUMS, 0x0000000f),
  sum = ProtoField.bytes("saratoga.checksum", "Checksum"),
  size = ProtoField.string("saratoga.size", "Size"),
  mtime = ProtoField.absolute_time("saratoga.modified", "Modified", base.UTC),
  ctime = ProtoField.absolute_time("saratoga.created", "Created", base.UTC),
  stamped = ProtoField.bool("saratoga.stamped", "Timestamp present", 32, nil, 0x00080000),
  stamp = ProtoField.bytes("saratoga.timestamp", "Timestamp"),
  wanted = ProtoField.bool("saratoga.status_wanted", "STATUS wanted", 32, nil, 0x00010000),
  eod = ProtoField.bool("saratoga.end", "End of data", 32, nil, 0x00008000),
  offset = ProtoField.string("saratoga.offset", "Offset"),
  payload = ProtoField.bytes("saratoga.payload", "Payload"),
  nometa = ProtoField.bool("saratoga.metadata_missing", "METADATA missing", 32, nil, 0x00040000),
  incomplete = ProtoField.bool("saratoga.incomplete", "List incomplete", 32, nil, 0x00020000),
  voluntary = ProtoField.bool("saratoga.voluntary", "Voluntary", 32, nil, 0x00010000),
  code = ProtoField.uint32("saratoga.code", "Code", base.HEX, CODES, 0x000000ff),
  progress = ProtoField.string("saratoga.progress", "Progress"),
  response = ProtoField.string("saratoga.in_response_to", "In response to"),
  hole = ProtoField.string("saratoga.hole", "Hole (inclusive)"),
}
saratoga.fields = f

local cut = ProtoExpert.new("saratoga.cut", "Frame is cut short", expert.group.MALFORMED, expert.severity.ERROR)
local version = ProtoExpert.new("saratoga.other", "Not Saratoga version 1", expert.group.PROTOCOL, expert.severity.WARN)
saratoga.experts = { cut, version }

-- Seconds between the epochs, leap seconds included.
local EPOCH = 946684822

-- Fields in order; `take` errors past the end, which the caller shows as a cut frame.
local function reader(buffer, at)
  local self = { at = at }
  function self.left() return buffer:len() - self.at end
  function self.take(len)
    if len > self.left() then error("cut") end
    local range = buffer(self.at, len)
    self.at = self.at + len
    return range
  end
  return self
end

-- A descriptor in decimal; one of 128 bits in hexadecimal.
local function number(range)
  if range:len() <= 8 then return tostring(range:uint64()) end
  return "0x" .. tostring(range:bytes())
end

local function descriptor(tree, field, r, width)
  local range = r.take(width)
  local value = number(range)
  tree:add(field, range, value)
  return value
end

local function path(tree, r, buffer)
  local len = 0
  while len < r.left() and buffer(r.at + len, 1):uint() ~= 0 do len = len + 1 end
  local range = r.take(len)
  r.take(1)
  local text = len > 0 and range:string(ENC_UTF_8) or ""
  tree:add(f.path, range, text)
  return text
end

local function capabilities(tree, first)
  tree:add(f.streams, first)
  tree:add(f.send, first)
  tree:add(f.receive, first)
  tree:add(f.lite, first)
end

local function time(tree, field, r)
  local range = r.take(4)
  tree:add(field, range, NSTime.new(range:uint() + EPOCH, 0))
end

local bodies = {}

bodies[0] = function(tree, r, buffer, first)
  capabilities(tree, first)
  if first:bitfield(17, 1) == 1 then tree:add(f.free, r.take(WIDTHS[first:bitfield(18, 2)])) end
  if r.left() == 0 then return "" end
  local name = r.take(r.left())
  tree:add(f.eid, name)
  return name:string(ENC_UTF_8)
end

bodies[1] = function(tree, r, buffer, first)
  capabilities(tree, first)
  tree:add(f.late, first)
  tree:add(f.request, first)
  local text = path(tree, r, buffer)
  if r.left() > 0 then tree:add(f.auth, r.take(r.left())) end
  return string.format("%s %s", REQUESTS[first:bitfield(24, 8)] or "unknown", text)
end

bodies[2] = function(tree, r, buffer, first)
  tree:add(f.kind, first)
  tree:add(f.ended, first)
  tree:add(f.unreliable, first)
  tree:add(f.sumlen, first)
  tree:add(f.sumtype, first)
  local words = first:bitfield(24, 4)
  if words > 0 then tree:add(f.sum, r.take(words * 4)) end
  local properties = r.take(2)
  local size = descriptor(tree, f.size, r, WIDTHS[properties:bitfield(8, 2)])
  time(tree, f.mtime, r)
  time(tree, f.ctime, r)
  return string.format("%s, %s octets", path(tree, r, buffer), size)
end

local function stamp(tree, r, first)
  tree:add(f.stamped, first)
  if first:bitfield(12, 1) == 1 then tree:add(f.stamp, r.take(16)) end
end

bodies[3] = function(tree, r, buffer, first)
  tree:add(f.kind, first)
  stamp(tree, r, first)
  tree:add(f.wanted, first)
  tree:add(f.eod, first)
  local offset = descriptor(tree, f.offset, r, WIDTHS[first:bitfield(8, 2)])
  local len = r.left()
  if len > 0 then tree:add(f.payload, r.take(len)) end
  local flags = (first:bitfield(15, 1) == 1 and " ask" or "") .. (first:bitfield(16, 1) == 1 and " end" or "")
  return string.format("%s+%d%s", offset, len, flags)
end

bodies[4] = function(tree, r, buffer, first)
  stamp(tree, r, first)
  tree:add(f.nometa, first)
  tree:add(f.incomplete, first)
  tree:add(f.voluntary, first)
  tree:add(f.code, first)
  local code = first:bitfield(24, 8)
  if code ~= 0 then return CODES[code] or "unknown code" end
  -- The answer to a delete has fields of 16 bits, whatever its descriptor says.
  local width = r.left() == 4 and 2 or WIDTHS[first:bitfield(8, 2)]
  local progress = descriptor(tree, f.progress, r, width)
  local response = descriptor(tree, f.response, r, width)
  local holes = 0
  while r.left() >= 2 * width do
    local range = buffer(r.at, 2 * width)
    local from, to = number(r.take(width)), number(r.take(width))
    tree:add(f.hole, range, from .. "-" .. to)
    holes = holes + 1
  end
  return string.format("%s/%s, %d holes", progress, response, holes)
end

-- A capture where frames are sent shows those that left in one batch (UDP GSO) as one datagram: frames of
-- one session at equal distances, the last one perhaps shorter. The distance; nil for a single frame.
local function stride(raw)
  local session = raw:sub(5, 8)
  local function frame_at(at)
    return math.floor(raw:byte(at + 1) / 32) == 1 and raw:sub(at + 5, at + 8) == session
  end
  local found = raw:find(session, 13, true)
  while found do
    local size = found - 5
    local at = size
    while at + 8 <= #raw and frame_at(at) do at = at + size end
    if at >= #raw then return size end
    found = raw:find(session, found + 1, true)
  end
end

-- Shows one frame in `root`; what the list of packets says of it.
local function frame(buffer, root)
  local tree = root:add(saratoga, buffer())
  local first = buffer(0, 4)
  tree:add(f.version, first)
  if first:bitfield(0, 3) ~= 1 then
    tree:add_proto_expert_info(version)
    return "other version"
  end
  tree:add(f.type, first)
  tree:add(f.width, first)
  local kind = first:bitfield(3, 5)
  local r = reader(buffer, 4)
  local ok, said = pcall(function()
    if kind ~= 0 then tree:add(f.session, r.take(4)) end
    local body = bodies[kind]
    return body and body(tree, r, buffer, first) or ""
  end)
  if not ok then
    tree:add_proto_expert_info(cut)
    said = "[cut short]"
  end
  return string.format("%s %s", TYPES[kind] or "unknown type", said)
end

function saratoga.dissector(buffer, pinfo, root)
  if buffer:len() < 4 then return 0 end
  pinfo.cols.protocol = "Saratoga"
  local size = stride(buffer:raw()) or buffer:len()
  local said = {}
  for at = 0, buffer:len() - 1, size do
    local length = math.min(size, buffer:len() - at)
    table.insert(said, frame(buffer(at, length):tvb(), root))
  end
  pinfo.cols.info = said[1] .. (#said > 1 and string.format(" (+%d in one batch)", #said - 1) or "")
  return buffer:len()
end

DissectorTable.get("udp.port"):add(7542, saratoga)
