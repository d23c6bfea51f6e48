"""A client of a proxy on HTTP/3, by aioquic.

http3_client.py PROXY_PORT CA CERTIFICATE KEY WHAT ARGUMENTS...
    echo PORT LENGTH        by connect-tcp and by classic CONNECT: so many bytes there and back, half-closed by this side
    download PORT LENGTH    by connect-tcp, with a window that begins at 64 kB
    reset PORT              the server resets
    abandon PORT            this side resets
    refused PORT...         the status and Proxy-Status of each
    udp PORT                CONNECT-UDP: datagrams there and back
    going PORT              prints `open`, and echoes until GOAWAY has come and a line on standard input after it
    stranger                connects with a certificate whose key it has not
Prints what came of it, a line each, and `ready` last.
"""

import asyncio
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, FrameType, H3Connection
from aioquic.h3.events import DataReceived, DatagramReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset
from capsules import DATA, FINAL_DATA, capsule, take
from cryptography.hazmat.primitives.asymmetric import ec

CONNECT_PROTOCOL = 0x8


class Http3(H3Connection):
    going = None

    def _handle_control_frame(self, frame_type, frame_data):
        if frame_type == FrameType.GOAWAY and self.going is not None:
            self.going.set()
        super()._handle_control_frame(frame_type, frame_data)


class Tunnel:
    """What came on one stream."""

    def __init__(self):
        self.fields = None
        self.raw = b""
        self.data = bytearray()
        self.final = self.ended = False
        self.reset = None
        self.datagrams = []
        self.changed = asyncio.Event()

    def take_capsules(self):
        whole, self.raw = take(self.raw)
        for kind, value in whole:
            if kind in (DATA, FINAL_DATA):
                assert not self.final, "something comes after FINAL_DATA"
                self.data += value
                self.final = kind == FINAL_DATA

    async def until(self, what):
        while not what(self):
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 20)


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = Http3(self._quic, enable_webtransport=True)
        self.http.going = asyncio.Event()
        self.tunnels = {}
        self.lost = None

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.tunnels:
            tunnel = self.tunnels[event.stream_id]
            tunnel.reset = event.error_code
            tunnel.changed.set()
        if isinstance(event, ConnectionTerminated):
            self.lost = event
        for one in self.http.handle_event(event):
            tunnel = self.tunnels.get(one.stream_id)
            if tunnel is None:
                continue
            if isinstance(one, HeadersReceived):
                tunnel.fields = dict(one.headers)
            elif isinstance(one, DatagramReceived):
                assert one.data[:1] == b"\0"
                tunnel.datagrams.append(one.data[1:])
            elif isinstance(one, DataReceived):
                if tunnel.capsules:
                    tunnel.raw += one.data
                    tunnel.take_capsules()
                else:
                    tunnel.data += one.data
            tunnel.ended |= getattr(one, "stream_ended", False)
            tunnel.changed.set()

    def ask(self, port, protocol=b"connect-tcp-12", path=b"tcp"):
        stream = self._quic.get_next_available_stream_id()
        tunnel = self.tunnels[stream] = Tunnel()
        tunnel.stream, tunnel.capsules = stream, protocol == b"connect-tcp-12"
        target = str(port).encode()
        fields = [(b":method", b"CONNECT")]
        if protocol:
            fields += [
                (b":protocol", protocol),
                (b":scheme", b"https"),
                (b":authority", b"proxy.example"),
                (b":path", b"/.well-known/masque/%s/127.0.0.1/%s/" % (path, target)),
                (b"capsule-protocol", b"?1"),
            ]
        else:
            fields += [(b":authority", b"127.0.0.1:" + target)]
        self.http.send_headers(stream, fields)
        self.transmit()
        return tunnel

    def say(self, tunnel, data, end=False):
        if tunnel.capsules:
            kind = FINAL_DATA if end else DATA
            data = capsule(kind, data)
        self.http.send_data(tunnel.stream, data, end)
        self.transmit()

    async def open(self, port, protocol=b"connect-tcp-12"):
        tunnel = self.ask(port, protocol)
        await tunnel.until(lambda it: it.fields)
        assert tunnel.fields[b":status"] == b"200", tunnel.fields
        return tunnel


async def echo(client, port, length):
    sent = bytes(range(256)) * (int(length) // 256)
    for protocol in (b"connect-tcp-12", None):
        tunnel = await client.open(port, protocol)
        for start in range(0, len(sent), 50_000):
            client.say(tunnel, sent[start : start + 50_000])
        await tunnel.until(lambda it: len(it.data) == len(sent))
        client.say(tunnel, b"end", True)
        await tunnel.until(lambda it: it.ended)
        assert tunnel.data == sent + b"end" and tunnel.final == tunnel.capsules
        print("echoed", protocol and protocol.decode(), flush=True)


async def download(client, port, length):
    tunnel = await client.open(port)
    await tunnel.until(lambda it: it.final)
    client.say(tunnel, b"", True)
    await tunnel.until(lambda it: it.ended)
    assert len(tunnel.data) == int(length) and tunnel.final
    print("downloaded", len(tunnel.data))


async def reset(client, port):
    for protocol in (b"connect-tcp-12", None):
        tunnel = await client.open(port, protocol)
        client.say(tunnel, b"x")
        await tunnel.until(lambda it: it.reset is not None or it.ended)
        assert not tunnel.final
        print("no FINAL_DATA" if tunnel.reset is None else f"reset {tunnel.reset:#x}")


async def abandon(client, port):
    tunnel = await client.open(port)
    client.say(tunnel, b"x")
    await tunnel.until(lambda it: it.data)
    client._quic.reset_stream(tunnel.stream, 0x10F)
    client.transmit()
    await tunnel.until(lambda it: it.reset is not None or it.ended)
    print("abandoned")


async def refused(client, *ports):
    for port in ports:
        tunnel = client.ask(port)
        await tunnel.until(lambda it: it.fields and it.ended)
        print(tunnel.fields[b":status"].decode(), tunnel.fields.get(b"proxy-status", b"").decode())


async def udp(client, port):
    tunnel = client.ask(port, b"connect-udp", b"udp")
    await tunnel.until(lambda it: it.fields)
    assert tunnel.fields[b":status"] == b"200", tunnel.fields
    for number in range(10):
        payload = bytes([number]) * (100 * number + 1)
        client.http.send_datagram(tunnel.stream, b"\0" + payload)
        client.transmit()
        await tunnel.until(lambda it: len(it.datagrams) > number)
        assert tunnel.datagrams[number] == payload
    print("datagrams", len(tunnel.datagrams))


async def going(client, port):
    tunnel = await client.open(port)
    print("open", flush=True)
    await asyncio.wait_for(client.http.going.wait(), 20)
    client.say(tunnel, b"still")
    await tunnel.until(lambda it: it.data == b"still")
    late = client.ask(port)
    await late.until(lambda it: it.reset is not None)
    print(f"late {late.reset:#x}")
    client.say(tunnel, b"", True)
    await tunnel.until(lambda it: it.ended)
    print("ended")


async def main():
    port, ca, certificate, key, what, *arguments = sys.argv[1:]
    window = {"max_stream_data": 65_536} if what == "download" else {}
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=H3_ALPN,
        server_name="localhost",
        max_datagram_frame_size=65_536,
        **window,
    )
    configuration.verify_mode = ssl.CERT_REQUIRED
    configuration.load_verify_locations(ca)
    configuration.load_cert_chain(certificate, key)
    if what == "stranger":
        configuration.private_key = ec.generate_private_key(ec.SECP256R1())
    options = {"configuration": configuration, "create_protocol": Client}
    async with connect("127.0.0.1", int(port), **options) as client:
        if what == "stranger":
            await client.wait_closed()
            print(f"refused {client.lost.error_code:#x}")
        else:
            await client.ping()
            settings = client.http.received_settings
            assert settings[CONNECT_PROTOCOL] == 1, settings
            await globals()[what](client, *arguments)
    print("ready", flush=True)


asyncio.run(main())
