"""A file system in memory, as one of FUSE: whatever is made there belongs to user 1234, who alone may change modes and
times; it tells no room, and knows neither files without a name nor more than the plain rename. As FAT and network file
systems may be. Descriptor 3 is /dev/fuse, mounted; it ends when it is unmounted."""

import errno
import os
import struct

OWNER = 1234
ROOT = 1
content = {}
names = {}
last = ROOT


def attributes(node):
    kind, size, links = (0o40777, 0, 2) if node == ROOT else (0o100600, len(content[node]), 1)
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, kind, links, OWNER, OWNER, 0, 4096, 0)


def entry(node):
    return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + attributes(node)


def text(octets):
    return octets.split(b"\0")[0]


def setattr(node, said):
    (valid,) = struct.unpack_from("<I", said)
    # Mode, user, group, and times unless they are those of now.
    if valid & 7 or valid & 0x30 and not valid & 0x180:
        raise PermissionError(errno.EPERM, "")
    if valid & 8:
        (size,) = struct.unpack_from("<Q", said, 16)
        octets = content[node]
        del octets[size:]
        octets.extend(bytes(size - len(octets)))
    return struct.pack("<Q2I", 0, 0, 0) + attributes(node)


def create(node, said):
    global last
    last += 1
    content[last] = bytearray()
    names[text(said[16:])] = last
    return entry(last) + struct.pack("<Q2I", 0, 0, 0)


def write(node, said):
    _, offset, size = struct.unpack_from("<2QI", said)
    octets = content[node]
    octets.extend(bytes(max(0, offset - len(octets))))
    octets[offset : offset + size] = said[40 : 40 + size]
    return struct.pack("<2I", size, 0)


def read(node, said):
    _, offset, size = struct.unpack_from("<2QI", said)
    return bytes(content[node][offset : offset + size])


def rename(node, said):
    old, new = said[8:].split(b"\0")[:2]
    names[new] = names.pop(old)
    return b""


def readdir(node, said):
    _, offset, most = struct.unpack_from("<2QI", said)
    listed = b""
    for at, (name, inode) in list(enumerate(sorted(names.items()), 1))[offset:]:
        one = struct.pack("<2Q2I", inode, at, len(name), 8) + name
        one += bytes(-len(one) % 8)
        if len(listed) + len(one) > most:
            break
        listed += one
    return listed


ANSWERS = {
    1: lambda node, said: entry(names[text(said)]),
    3: lambda node, said: struct.pack("<Q2I", 0, 0, 0) + attributes(node),
    4: setattr,
    10: lambda node, said: names.pop(text(said)) and b"",
    12: rename,
    14: lambda node, said: struct.pack("<Q2I", 0, 0, 0),
    15: read,
    16: write,
    17: lambda node, said: bytes(80),
    18: lambda node, said: b"",
    26: lambda node, said: struct.pack("<4I2H2I2HI", 7, 31, 65536, 0, 8, 8, 65536, 1, 0, 0, 0).ljust(64, b"\0"),
    27: lambda node, said: struct.pack("<Q2I", 0, 0, 0),
    28: readdir,
    29: lambda node, said: b"",
    35: create,
}

while True:
    try:
        asked = os.read(3, 1 << 20)
    except OSError as error:
        if error.errno in (errno.EINTR, errno.ENOENT):
            continue
        break
    length, opcode, unique, node = struct.unpack_from("<2I2Q", asked)
    if opcode in (2, 36, 42):
        continue
    error, said = 0, b""
    try:
        said = ANSWERS[opcode](node, asked[40:length])
    except KeyError:
        error = errno.ENOENT if opcode in ANSWERS else errno.ENOSYS
    except PermissionError:
        error = errno.EPERM
    try:
        os.write(3, struct.pack("<IiQ", 16 + len(said), -error, unique) + said)
    except OSError:
        pass
