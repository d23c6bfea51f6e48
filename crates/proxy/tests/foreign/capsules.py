"""Capsules of connect-tcp (draft-ietf-httpbis-connect-tcp), by aioquic's integers."""

from aioquic.buffer import Buffer, encode_uint_var

DATA, FINAL_DATA = 0x2028D7F2, 0x2028D7F3


def capsule(kind, value):
    return encode_uint_var(kind) + encode_uint_var(len(value)) + value


def take(raw):
    """The whole capsules of `raw`, kinds and values, and what is left of it."""
    whole = []
    while True:
        buffer = Buffer(data=raw)
        try:
            kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
            value = buffer.pull_bytes(length)
        except ValueError:
            return whole, raw
        whole.append((kind, value))
        raw = raw[buffer.tell() :]
