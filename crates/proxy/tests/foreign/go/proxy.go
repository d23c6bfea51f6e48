package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	masque "github.com/quic-go/masque-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

// proxy serves by quic-go until standard input ends: connect-tcp by itself, CONNECT-UDP by masque-go.
func proxy(certificate, key, authorities string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	trusted, err := trust(authorities)
	if err != nil {
		return err
	}
	security := &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    trusted,
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	var flows masque.Proxy
	template := uritemplate.MustNew("https://localhost/.well-known/masque/udp/{target_host}/{target_port}/")
	server := &http3.Server{
		EnableDatagrams: true,
		QUICConfig:      &quic.Config{EnableDatagrams: true},
		TLSConfig:       http3.ConfigureTLSConfig(security),
		Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
			if request.Proto != "connect-udp" {
				carry(answer, request)
				return
			}
			asked, err := masque.ParseRequest(request, template)
			if err != nil {
				fmt.Println("refused", err)
				answer.WriteHeader(http.StatusBadRequest)
				return
			}
			shown := request.TLS.PeerCertificates[0].Subject.CommonName
			fmt.Println("asked connect-udp", asked.Target, "by", shown)
			if err := flows.Proxy(answer, asked); err != nil {
				fmt.Println("failed", err)
			}
		}),
	}
	fmt.Println(socket.LocalAddr().(*net.UDPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Close()
	}()
	if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// carry is connect-tcp: half-closes by FINAL_DATA, resets by H3_CONNECT_ERROR.
func carry(answer http.ResponseWriter, request *http.Request) {
	parts := strings.Split(request.URL.Path, "/")
	if request.Method != http.MethodConnect || len(parts) < 3 {
		answer.WriteHeader(http.StatusBadRequest)
		return
	}
	host, port := parts[len(parts)-3], parts[len(parts)-2]
	fmt.Println("asked", request.Proto, host)
	dialled, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			answer.Header().Set("Proxy-Status", "quic-go; error=connection_refused")
		}
		answer.WriteHeader(http.StatusBadGateway)
		return
	}
	server := dialled.(*net.TCPConn)
	defer server.Close()
	answer.Header().Set(http3.CapsuleProtocolHeader, "?1")
	answer.WriteHeader(http.StatusOK)
	stream := answer.(http3.HTTPStreamer).HTTPStream()
	refuse := quic.StreamErrorCode(http3.ErrCodeConnectError)
	down := make(chan struct{})
	go func() {
		defer close(down)
		buffer := make([]byte, 65_536)
		for {
			got, err := server.Read(buffer)
			if got > 0 && writeCapsule(stream, data, buffer[:got]) != nil {
				return
			}
			if err == io.EOF {
				writeCapsule(stream, finalData, nil)
				stream.Close()
				return
			}
			if err != nil {
				stream.CancelWrite(refuse)
				stream.CancelRead(refuse)
				return
			}
		}
	}()
	if _, err := io.Copy(server, newCapsuleReader(stream)); err == nil {
		server.CloseWrite()
	} else {
		// Closing is a reset then.
		server.SetLinger(0)
		server.Close()
		stream.CancelWrite(refuse)
		stream.CancelRead(refuse)
		fmt.Println("aborted")
	}
	<-down
}
