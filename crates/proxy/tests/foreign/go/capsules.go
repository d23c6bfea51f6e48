package main

import (
	"io"

	"github.com/quic-go/quic-go/quicvarint"
)

// Capsules of connect-tcp (draft-ietf-httpbis-connect-tcp).
const (
	data      = 0x2028D7F2
	finalData = 0x2028D7F3
)

func writeCapsule(to io.Writer, kind uint64, value []byte) error {
	header := quicvarint.Append(quicvarint.Append(nil, kind), uint64(len(value)))
	_, err := to.Write(append(header, value...))
	return err
}

// capsuleReader has the bytes of DATA and FINAL_DATA, and io.EOF once the latter has been read whole.
type capsuleReader struct {
	from   quicvarint.Reader
	stream io.Reader
	left   uint64
	kind   uint64
}

func newCapsuleReader(stream io.Reader) *capsuleReader {
	return &capsuleReader{from: quicvarint.NewReader(stream), stream: stream}
}

func (c *capsuleReader) Read(to []byte) (int, error) {
	for c.left == 0 {
		if c.kind == finalData {
			return 0, io.EOF
		}
		var err error
		if c.kind, err = quicvarint.Read(c.from); err == nil {
			c.left, err = quicvarint.Read(c.from)
		}
		if err == io.EOF {
			// The stream has ended before FINAL_DATA.
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if c.kind != data && c.kind != finalData {
			if _, err := io.CopyN(io.Discard, c.stream, int64(c.left)); err != nil {
				return 0, err
			}
			c.left = 0
		}
	}
	got, err := c.stream.Read(to[:min(uint64(len(to)), c.left)])
	c.left -= uint64(got)
	if got > 0 {
		err = nil
	}
	return got, err
}
