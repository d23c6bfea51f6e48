"""An enemy of a proxy on HTTP/2, whose certificate it trusts: by h2 where that will do it, else by frames of hyperframe.

http2_hostile.py PROXY_PORT CA CERTIFICATE KEY ECHO_PORT SOURCE_PORT UDP_ECHO_PORT FRIEND_CERTIFICATE FRIEND_KEY
Each attack has a connection of its own, all but one at once; tunnels of further connections carry bytes beside them, and after them. Prints for
each attack what the proxy did of it, how many such tunnels there were, and `ready` last.
"""

import concurrent.futures
import os
import socket
import ssl
import struct
import sys
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hpack
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PORT, CA, CERTIFICATE, KEY, ECHO, SOURCE, UDP_ECHO, *FRIEND = sys.argv[1:]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CODES = {0: "NO_ERROR", 1: "PROTOCOL_ERROR", 3: "FLOW_CONTROL_ERROR", 7: "REFUSED_STREAM", 9: "COMPRESSION_ERROR"}
CODES |= {5: "STREAM_CLOSED", 6: "FRAME_SIZE_ERROR", 8: "CANCEL", 10: "CONNECT_ERROR", 11: "ENHANCE_YOUR_CALM"}


def tls(certificate=CERTIFICATE, key=KEY):
    context = ssl.create_default_context(cafile=CA)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", int(PORT)), 20)
    return context.wrap_socket(plain, server_hostname="localhost")


def connect_to(port):
    return [(":method", "CONNECT"), (":authority", f"127.0.0.1:{port}")]


def extended(port, protocol="connect-tcp-12", kind="tcp"):
    return [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "https"),
        (":authority", "proxy.example"),
        (":path", f"/.well-known/masque/{kind}/127.0.0.1/{port}/"),
        ("capsule-protocol", "?1"),
    ]


class Raw:
    """A connection of frames."""

    def __init__(self, settings=None):
        self.socket = tls()
        self.encoder = hpack.Encoder()
        self.socket.sendall(PREFACE + SettingsFrame(0, settings=settings or {}).serialize())
        self.unread = b""

    def send(self, *frames):
        self.socket.sendall(b"".join(frame.serialize() for frame in frames))

    def headers(self, stream, fields, flags=("END_HEADERS",)):
        return HeadersFrame(stream, self.encoder.encode(fields), flags=flags)

    def frames(self):
        """What comes, until the proxy closes or is silent for a second."""
        self.socket.settimeout(1)
        while True:
            try:
                data = self.socket.recv(65_536)
            except TimeoutError:
                return
            except OSError:
                yield None
                return
            if not data:
                yield None
                return
            self.unread += data
            while len(self.unread) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self.unread[:9]))
                if len(self.unread) < 9 + length:
                    break
                frame.parse_body(memoryview(self.unread[9 : 9 + length]))
                self.unread = self.unread[9 + length :]
                yield frame

    def said(self):
        """What the proxy says: resets, UDP payloads, and an answer to a ping, each once."""
        self.send(PingFrame(0, b"12345678"))
        told, bodies = [], {}
        for frame in self.frames():
            if isinstance(frame, RstStreamFrame):
                told.append("RST_STREAM " + CODES.get(frame.error_code, str(frame.error_code)))
            elif isinstance(frame, PingFrame):
                told.append("PING")
            elif isinstance(frame, DataFrame):
                bodies[frame.stream_id] = bodies.get(frame.stream_id, b"") + frame.data
            elif isinstance(frame, GoAwayFrame) or frame is None:
                told.append("closed")
        self.socket.close()
        for body in bodies.values():
            # Short DATAGRAM capsules of context zero: type, length, context.
            while len(body) > 2:
                payload = body[3 : 2 + body[1]]
                told += [payload.decode()] if payload else []
                body = body[2 + body[1] :]
        return " ".join(sorted(set(told)))

    def verdict(self):
        """How the proxy ended the connection, or else its streams; `goes on`: it did not."""
        ends = []
        for frame in self.frames():
            if isinstance(frame, GoAwayFrame):
                ends.append("GOAWAY " + CODES.get(frame.error_code, str(frame.error_code)))
            elif isinstance(frame, RstStreamFrame):
                ends.append("RST_STREAM " + CODES.get(frame.error_code, str(frame.error_code)))
            elif frame is None:
                ends.append("closed")
        self.socket.close()
        goaway = [end for end in ends if end.startswith("GOAWAY")]
        return (goaway or ends or ["goes on"])[0]


def benign():
    """A tunnel by h2 that carries bytes there and back, of another key: limits are of a key."""
    stream = tls(*FRIEND)
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    connection.send_headers(1, connect_to(ECHO))
    connection.send_data(1, b"there and back", end_stream=True)
    stream.sendall(connection.data_to_send())
    got = b""
    while True:
        data = stream.recv(65_536)
        assert data, "the proxy closed a friend's connection"
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                got += event.data
            if isinstance(event, h2.events.StreamEnded):
                assert got == b"there and back", got
                stream.close()
                return
            assert not isinstance(event, h2.events.StreamReset), event
        stream.sendall(connection.data_to_send())


def resets():
    """Ten thousand streams, each reset at once."""
    raw = Raw()
    try:
        for stream in range(1, 20_001, 2):
            raw.send(raw.headers(stream, connect_to(ECHO)), RstStreamFrame(stream, error_code=8))
    except OSError:
        pass
    return raw.verdict()


def streams():
    """Ten thousand streams that stay."""
    raw = Raw()
    try:
        for stream in range(1, 20_001, 2):
            raw.send(raw.headers(stream, connect_to(ECHO)))
    except OSError:
        pass
    return raw.verdict()


def pings():
    """A hundred thousand pings, whose answers are not read."""
    raw = Raw()
    many = PingFrame(0, b"12345678").serialize() * 1000
    raw.socket.settimeout(2)
    try:
        for _ in range(100):
            raw.socket.sendall(many)
    except OSError:
        pass
    return raw.verdict()


def settings():
    """Ten thousand SETTINGS."""
    raw = Raw()
    try:
        raw.send(*[SettingsFrame(0, settings={3: 100})] * 10_000)
    except OSError:
        pass
    return raw.verdict()


def fields():
    """Fields of 100 kB."""
    raw = Raw()
    block = raw.encoder.encode([*connect_to(ECHO), ("x-long", os.urandom(50_000).hex())])
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    raw.send(
        HeadersFrame(1, pieces[0]),
        *[ContinuationFrame(1, piece) for piece in pieces[1:-1]],
        ContinuationFrame(1, pieces[-1], flags=["END_HEADERS"]),
    )
    return raw.verdict()


def continuations():
    """Fields without an end."""
    raw = Raw()
    try:
        raw.send(HeadersFrame(1, raw.encoder.encode(connect_to(ECHO))))
        for _ in range(100_000):
            raw.send(ContinuationFrame(1, b"\0\1x\1y"))
    except OSError:
        pass
    return raw.verdict()


def noise():
    """Bytes by chance in the place of frames."""
    raw = Raw()
    try:
        raw.socket.sendall(bytes(range(256)) * 1000)
    except OSError:
        pass
    return raw.verdict()


def window():
    """More than the window of a stream holds, to a target that reads nothing."""
    raw = Raw()
    raw.send(raw.headers(1, connect_to(SOURCE)))
    try:
        for _ in range(20_000):
            raw.send(DataFrame(1, bytes(16_000)))
    except OSError:
        pass
    return raw.verdict()


def overflow():
    """A window of more than 2^31 - 1."""
    raw = Raw()
    raw.send(raw.headers(1, connect_to(ECHO)), *[WindowUpdateFrame(1, window_increment=(1 << 31) - 1)] * 2)
    return raw.verdict()


def unread():
    """A hundred tunnels of whose bytes not one is taken."""
    raw = Raw({SettingsFrame.INITIAL_WINDOW_SIZE: 0})
    for stream in range(1, 201, 2):
        raw.send(raw.headers(stream, connect_to(SOURCE)))
    return raw.verdict()


def capsules(*bodies):
    """Bodies of connect-tcp that are none."""

    def one(body, end):
        raw = Raw()
        flags = ["END_STREAM"] if end else []
        raw.send(raw.headers(1, extended(ECHO)), DataFrame(1, body, flags=flags))
        return raw.verdict()

    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as each:
        return ", ".join(each.map(one, *zip(*bodies)))


def cut():
    """DATA cut short, FINAL_DATA twice, a length of 2^62 - 1 of an unknown capsule, and of DATA."""
    data, final = (struct.pack(">I", kind | 0x80000000) for kind in (0x2028D7F2, 0x2028D7F3))
    return capsules(
        (data + b"\x05ab", True),
        (final + b"\0" + final + b"\0", False),
        (b"\x3f" + b"\xff" * 8 + b"x" * 1000, False),
        (data + b"\xff" * 8 + b"x" * 1000, False),
    )


def datagram(payload, context=b"\0"):
    """A capsule of type DATAGRAM (RFC 9297, section 3.5) with a UDP payload (RFC 9298, section 5)."""
    value = context + payload
    return b"\0" + struct.pack(">H", len(value) | 0x4000) + value


def udp(*bodies, flags=(), then=()):
    """What is said of flows with these bodies on one connection; `then` is sent last."""
    raw = Raw()
    for number, body in enumerate(bodies):
        stream = 2 * number + 1
        raw.send(raw.headers(stream, extended(UDP_ECHO, "connect-udp", "udp")))
        pieces = [body[at : at + 16_000] for at in range(0, len(body), 16_000)]
        raw.send(*[DataFrame(stream, piece) for piece in pieces[:-1]], DataFrame(stream, pieces[-1], flags=flags))
    raw.send(*then)
    return raw.said()


def udp_cut():
    """A capsule that ends anywhere within."""
    whole = datagram(b"abcde")
    return udp(*[whole[:cut] for cut in range(1, len(whole))], flags=["END_STREAM"])


def udp_malformed():
    """Datagrams without a context, and with a part of one."""
    return udp(b"\0\0", b"\0\1\x40", datagram(b"", b"\xc0\0\0"))


def udp_forged():
    """Contexts that nobody has agreed on, capsules of unknown types, and what is longer than UDP is carried; and then one that is good."""
    contexts = [datagram(b"no", context) for context in (b"\2", b"\x40\x41", b"\xff" * 8)]
    unknown = [b"\x17\3abc", b"\xff" * 7 + b"\xfe" + b"\0"]
    return udp(b"".join(contexts + unknown) + datagram(bytes(12_000)) + datagram(b"good"))


def udp_lengths():
    """Capsules of 2^62 - 1 bytes, of which 60 kB come."""
    return udp(*[kind + b"\xff" * 8 + bytes(30_000) for kind in (b"\0", b"\x17")])


def udp_flood():
    """As many empty payloads as a window holds."""
    return udp(datagram(b"") * 16_000)


def udp_gone():
    """Flows that are reset while answers come, and datagrams for them after that."""
    streams = range(1, 41, 2)
    late = [DataFrame(stream, datagram(b"late")) for stream in streams]
    resets = [RstStreamFrame(stream, error_code=8) for stream in streams]
    return udp(*[datagram(b"x" * 30) * 10 for _ in streams], then=[*resets, *late])


def uploads():
    """DATA on a stream that was never opened, and on stream 0."""
    ends = []
    for stream in (5, 0):
        raw = Raw()
        frame = DataFrame(5, b"x").serialize()
        raw.socket.sendall(frame[:5] + struct.pack(">I", stream) + frame[9:])
        ends.append(raw.verdict())
    return ", ".join(ends)


ATTACKS = (resets, pings, settings, fields, continuations, noise, window, overflow, unread, cut, uploads)
ATTACKS += (udp_cut, udp_malformed, udp_forged, udp_lengths, udp_flood, udp_gone)
with concurrent.futures.ThreadPoolExecutor(len(ATTACKS)) as enemies:
    verdicts = [enemies.submit(attack) for attack in ATTACKS]
    # A friend beside them, and after them.
    friends = 0
    while not all(verdict.done() for verdict in verdicts):
        benign()
        friends += 1
        time.sleep(0.05)
    # These take all tunnels of their key: what else it asks for would be refused.
    verdicts.append(enemies.submit(streams))
    while not verdicts[-1].done():
        benign()
        friends += 1
        time.sleep(0.05)
    benign()
ATTACKS += (streams,)
for attack, verdict in zip(ATTACKS, verdicts):
    print(attack.__name__, verdict.result(), sep=": ", flush=True)
print("friends", friends, flush=True)
print("ready", flush=True)
