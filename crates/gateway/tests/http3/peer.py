"""An HTTP/3 server, and a client of it, by aioquic.

peer.py server ADDRESS PORT            answers /N by N bytes; field x-client: whom it sees
peer.py client ADDRESS PORT N COUNT    asks COUNT times for N bytes, ten times a second at most, on one connection, and prints for each
                                       answer its length and x-client
"""

import asyncio
import datetime
import sys
import tempfile

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Server(QuicConnectionProtocol):
    http = None

    def quic_event_received(self, event):
        if self.http is None:
            self.http = H3Connection(self._quic)
        for one in self.http.handle_event(event):
            if isinstance(one, HeadersReceived):
                length = int(dict(one.headers)[b":path"][1:])
                # The path in use is the first: the public interface does not tell it.
                seen = self._quic._network_paths[0].addr[0].removeprefix("::ffff:")
                fields = [(b":status", b"200"), (b"x-client", seen.encode())]
                self.http.send_headers(one.stream_id, fields)
                self.http.send_data(one.stream_id, b"x" * length, end_stream=True)
        self.transmit()


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def quic_event_received(self, event):
        for one in self.http.handle_event(event):
            answer = self.answers[one.stream_id]
            if isinstance(one, HeadersReceived):
                answer["fields"] = dict(one.headers)
            if isinstance(one, DataReceived):
                answer["length"] += len(one.data)
            if one.stream_ended:
                answer["done"].set_result(None)

    async def get(self, authority, length):
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        answer = self.answers[stream] = {"length": 0, "done": done}
        fields = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", authority.encode()),
            (b":path", f"/{length}".encode()),
        ]
        self.http.send_headers(stream, fields, end_stream=True)
        self.transmit()
        await done
        return answer["length"], answer["fields"][b"x-client"].decode()


def certificate(configuration):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server.test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day).sign(
        key, hashes.SHA256()
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(made.public_bytes(serialization.Encoding.PEM))
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        file.flush()
        configuration.load_cert_chain(file.name)


async def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "server":
        configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
        certificate(configuration)
        await serve(address, port, configuration=configuration, create_protocol=Server)
        print("ready", flush=True)
        await asyncio.Future()
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="server.test")
    # The certificate was made just now: whom the tunnels lead to is what the addresses tell.
    configuration.verify_mode = 0
    async with connect(address, port, configuration=configuration, create_protocol=Client) as client:
        for _ in range(int(sys.argv[5])):
            length, seen = await client.get("server.test", int(sys.argv[4]))
            print(length, seen, flush=True)
            await asyncio.sleep(0.1)


asyncio.run(main())
