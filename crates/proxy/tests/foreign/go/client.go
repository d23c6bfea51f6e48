package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	masque "github.com/quic-go/masque-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

const connectTCP = "connect-tcp-12"

// connection is one to the proxy.
type connection struct {
	context context.Context
	quic    *quic.Conn
	http    *http3.ClientConn
}

// client does `WHAT ARGUMENTS...`:
//
//	echo PORT LENGTH       by connect-tcp and by classic CONNECT: so many bytes there and back, half-closed here
//	download PORT LENGTH   by connect-tcp, with a window of 64 kB
//	reset PORT             the server resets, by either
//	abandon PORT           this side resets
//	refused PORT...        the status and Proxy-Status of each
//	stranger               has a certificate whose key it has not
//	udp PORT               by masque-go: datagrams there and back, on two flows
func client(arguments []string) error {
	port, what, rest := arguments[0], arguments[4], arguments[5:]
	authorities, err := trust(arguments[1])
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(arguments[2], arguments[3])
	if err != nil {
		return err
	}
	if what == "stranger" {
		if pair.PrivateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return err
		}
	}
	security := &tls.Config{
		RootCAs:      authorities,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{http3.NextProtoH3},
		ServerName:   "localhost",
	}
	limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if what == "udp" {
		err = udp(limit, security, port, rest[0])
	} else {
		settings := &quic.Config{EnableDatagrams: true}
		if what == "download" {
			settings.InitialStreamReceiveWindow, settings.MaxStreamReceiveWindow = 65_536, 65_536
		}
		var established *quic.Conn
		if established, err = quic.DialAddr(limit, "127.0.0.1:"+port, security, settings); err != nil {
			return err
		}
		transport := &http3.Transport{EnableDatagrams: true}
		to := &connection{limit, established, transport.NewClientConn(established)}
		switch what {
		case "echo":
			err = to.echo(rest[0], rest[1])
		case "download":
			err = to.download(rest[0], rest[1])
		case "reset":
			err = to.reset(rest[0])
		case "abandon":
			err = to.abandon(rest[0])
		case "refused":
			err = to.refused(rest)
		case "stranger":
			err = to.stranger()
		default:
			err = fmt.Errorf("there is no %q", what)
		}
		established.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
	}
	if err == nil {
		fmt.Println("ready")
	}
	return err
}

// trust reads the certificates of authorities.
func trust(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return authorities, nil
}

// ask has the proxy's answer to a request for a tunnel; without a protocol it is by classic CONNECT.
func (c *connection) ask(port, protocol string) (*http3.RequestStream, *http.Response, error) {
	select {
	case <-c.http.ReceivedSettings():
	case <-c.quic.Context().Done():
		return nil, nil, context.Cause(c.quic.Context())
	}
	if !c.http.Settings().EnableExtendedConnect {
		return nil, nil, errors.New("the proxy offers no extended CONNECT")
	}
	stream, err := c.http.OpenRequestStream(c.context)
	if err != nil {
		return nil, nil, err
	}
	request := &http.Request{Method: http.MethodConnect, Host: "127.0.0.1:" + port, Header: http.Header{}, URL: &url.URL{}}
	if protocol != "" {
		request.Proto, request.Host = protocol, "proxy.example"
		request.URL = &url.URL{Scheme: "https", Host: "proxy.example", Path: "/.well-known/masque/tcp/127.0.0.1/" + port + "/"}
		request.Header.Set(http3.CapsuleProtocolHeader, "?1")
	}
	if err := stream.SendRequestHeader(request); err != nil {
		return nil, nil, err
	}
	answer, err := stream.ReadResponse()
	return stream, answer, err
}

func (c *connection) open(port, protocol string) (*http3.RequestStream, error) {
	stream, answer, err := c.ask(port, protocol)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d %v", answer.StatusCode, answer.Header)
	}
	return stream, err
}

func (c *connection) echo(port, length string) error {
	size, err := strconv.Atoi(length)
	if err != nil {
		return err
	}
	sent := bytes.Repeat([]byte("abcdefghijklmnop"), size/16)
	for _, protocol := range []string{connectTCP, ""} {
		stream, err := c.open(port, protocol)
		if err != nil {
			return err
		}
		written := make(chan error, 1)
		var from io.Reader = stream
		if protocol != "" {
			from = newCapsuleReader(stream)
		}
		go func() {
			err := error(nil)
			for rest := sent; len(rest) > 0 && err == nil; rest = rest[min(50_000, len(rest)):] {
				piece := rest[:min(50_000, len(rest))]
				if protocol == "" {
					_, err = stream.Write(piece)
				} else {
					err = writeCapsule(stream, data, piece)
				}
			}
			if protocol != "" && err == nil {
				err = writeCapsule(stream, finalData, nil)
			}
			if err == nil {
				err = stream.Close()
			}
			written <- err
		}()
		got, err := io.ReadAll(from)
		if err = errors.Join(err, <-written); err != nil {
			return err
		}
		if !bytes.Equal(got, sent) {
			return fmt.Errorf("%d of %d bytes came back", len(got), len(sent))
		}
		if protocol == "" {
			protocol = "CONNECT"
		}
		fmt.Println("echoed", protocol)
	}
	return nil
}

func (c *connection) download(port, length string) error {
	stream, err := c.open(port, connectTCP)
	if err != nil {
		return err
	}
	got, err := io.Copy(io.Discard, newCapsuleReader(stream))
	if err != nil {
		return err
	}
	if strconv.FormatInt(got, 10) != length {
		return fmt.Errorf("%d of %s bytes came", got, length)
	}
	fmt.Println("downloaded", got)
	return errors.Join(writeCapsule(stream, finalData, nil), stream.Close())
}

func (c *connection) reset(port string) error {
	for _, protocol := range []string{connectTCP, ""} {
		stream, err := c.open(port, protocol)
		if err != nil {
			return err
		}
		if protocol == "" {
			_, err = stream.Write([]byte("x"))
		} else {
			err = writeCapsule(stream, data, []byte("x"))
		}
		if err != nil {
			return err
		}
		if protocol != "" {
			if _, err = io.ReadAll(newCapsuleReader(stream)); !errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("it ended as if by a FIN: %w", err)
			}
			fmt.Println("no FINAL_DATA")
			continue
		}
		_, err = io.ReadAll(stream)
		var failed *http3.Error
		if !errors.As(err, &failed) {
			return fmt.Errorf("it ended without a reset: %w", err)
		}
		fmt.Printf("reset %#x\n", uint64(failed.ErrorCode))
	}
	return nil
}

func (c *connection) abandon(port string) error {
	stream, err := c.open(port, connectTCP)
	if err != nil {
		return err
	}
	if err := writeCapsule(stream, data, []byte("x")); err != nil {
		return err
	}
	if _, err := io.ReadFull(newCapsuleReader(stream), make([]byte, 1)); err != nil {
		return err
	}
	stream.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError))
	// The proxy ends its side too.
	if _, err := io.ReadAll(stream); err == nil {
		return errors.New("the proxy ends it as if nothing had been")
	}
	fmt.Println("abandoned")
	return nil
}

func (c *connection) refused(ports []string) error {
	for _, port := range ports {
		stream, answer, err := c.ask(port, connectTCP)
		if err != nil {
			return err
		}
		if _, err := io.ReadAll(stream); err != nil {
			return err
		}
		fmt.Println(answer.StatusCode, answer.Header.Get("Proxy-Status"))
	}
	return nil
}

func (c *connection) stranger() error {
	<-c.quic.Context().Done()
	var failed *quic.TransportError
	if err := context.Cause(c.quic.Context()); !errors.As(err, &failed) {
		return fmt.Errorf("it is not refused: %w", err)
	}
	fmt.Printf("refused %#x\n", uint64(failed.ErrorCode))
	return nil
}

func udp(limit context.Context, security *tls.Config, proxy, port string) error {
	template := uritemplate.MustNew("https://localhost:" + proxy + "/.well-known/masque/udp/{target_host}/{target_port}/")
	target, err := net.ResolveUDPAddr("udp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	to := &masque.Client{TLSClientConfig: security}
	defer to.Close()
	for flow := range 2 {
		through, answer, err := to.Dial(limit, template, target)
		if err != nil {
			return err
		}
		fmt.Println("status", answer.StatusCode, answer.Header.Get("Capsule-Protocol"))
		buffer := make([]byte, 2000)
		for number := range 10 {
			payload := bytes.Repeat([]byte{byte(flow), byte(number)}, 50*number+1)
			if _, err := through.WriteTo(payload, target); err != nil {
				return err
			}
			if err := through.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				return err
			}
			got, _, err := through.ReadFrom(buffer)
			if err != nil {
				return err
			}
			if !bytes.Equal(buffer[:got], payload) {
				return fmt.Errorf("flow %d, datagram %d: %d bytes of %d came back", flow, number, got, len(payload))
			}
		}
		if err := through.Close(); err != nil {
			return err
		}
		fmt.Println("datagrams 10")
	}
	// Where a policy forbids it masque-go has the answer beside its error.
	forbidden := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: target.Port}
	if _, answer, err := to.Dial(limit, template, forbidden); err == nil || answer == nil {
		return fmt.Errorf("127.0.0.2 is not refused: %w", err)
	} else {
		fmt.Println("refused", answer.StatusCode, answer.Header.Get("Proxy-Status"))
	}
	return nil
}
