"""A proxy of connect-tcp on HTTP/3, by aioquic, for one near end.

http3_proxy.py CERTIFICATE KEY WINDOW
Prints its port, and then what it was asked for; `go` on standard input has it say GOAWAY.
"""

import asyncio
import socket
import struct
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3_ALPN, FrameType, H3Connection, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StopSendingReceived, StreamReset
from capsules import DATA, FINAL_DATA, capsule, take

CONNECT_ERROR = 0x10F
ALL = set()


class Tunnel:
    """A stream, and the TCP connection that it leads to."""

    def __init__(self, proxy, stream):
        self.proxy, self.stream = proxy, stream
        self.raw = b""
        self.queue = asyncio.Queue()
        self.pumps = []

    def send(self, kind, data):
        self.proxy.http.send_data(self.stream, capsule(kind, data), kind == FINAL_DATA)
        self.proxy.transmit()

    def answer(self, status, *fields):
        fields = [(b":status", status), *fields]
        self.proxy.http.send_headers(self.stream, fields, end_stream=status != b"200")
        self.proxy.transmit()

    async def dial(self, fields):
        *_, host, port, _ = fields[b":path"].decode().split("/")
        print("asked", fields[b":protocol"].decode(), host, flush=True)
        try:
            self.reader, self.writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            self.answer(b"502", (b"proxy-status", b"other; error=connection_refused"))
            return
        self.answer(b"200", (b"capsule-protocol", b"?1"))
        self.pumps = [asyncio.ensure_future(it) for it in (self.up(), self.down())]

    def take(self, data, ended):
        whole, self.raw = take(self.raw + data)
        for kind, value in whole:
            if kind in (DATA, FINAL_DATA):
                self.queue.put_nowait((value, kind == FINAL_DATA))

    async def up(self):
        while True:
            data, final = await self.queue.get()
            self.writer.write(data)
            await self.writer.drain()
            if final:
                self.writer.write_eof()
                return

    async def down(self):
        try:
            while data := await self.reader.read(65_536):
                self.send(DATA, data)
            self.send(FINAL_DATA, b"")
        except ConnectionResetError:
            self.proxy._quic.reset_stream(self.stream, CONNECT_ERROR)
            self.proxy.transmit()

    def abort(self):
        for pump in self.pumps:
            pump.cancel()
        # Closing is a reset then.
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


class Proxy(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = None
        self.tunnels = {}
        ALL.add(self)

    def quic_event_received(self, event):
        if self.http is None:
            self.http = H3Connection(self._quic)
        if isinstance(event, (StreamReset, StopSendingReceived)):
            if event.stream_id in self.tunnels:
                self.tunnels.pop(event.stream_id).abort()
                print("aborted", flush=True)
        for one in self.http.handle_event(event):
            if isinstance(one, HeadersReceived):
                tunnel = self.tunnels[one.stream_id] = Tunnel(self, one.stream_id)
                asyncio.ensure_future(tunnel.dial(dict(one.headers)))
            elif isinstance(one, DataReceived) and one.stream_id in self.tunnels:
                self.tunnels[one.stream_id].take(one.data, one.stream_ended)
        self.transmit()

    def go(self):
        frame = encode_frame(FrameType.GOAWAY, encode_uint_var(1 << 60))
        self._quic.send_stream_data(self.http._local_control_stream_id, frame)
        self.transmit()


async def main():
    certificate, key, window = sys.argv[1:]
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=H3_ALPN, max_stream_data=int(window)
    )
    configuration.load_cert_chain(certificate, key)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Proxy)
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        assert line == "go\n"
        for proxy in ALL:
            if proxy.http:
                proxy.go()
        print("gone", flush=True)


asyncio.run(main())
