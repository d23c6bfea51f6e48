// Peers of ours on HTTP/3 by quic-go, CONNECT-UDP by masque-go.
//
//	foreign client PROXY_PORT CA CERTIFICATE KEY WHAT ARGUMENTS...
//
// What it does is in client.go. It prints what came of it, a line each, and `ready` last.
//
//	foreign proxy CERTIFICATE KEY CLIENT_AUTHORITIES
//
// A proxy of connect-tcp and CONNECT-UDP until its standard input ends, for clients with a certificate of these authorities: proxy.go.
// It prints its port, and then what it was asked for.
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch arguments := os.Args[1:]; {
	case len(arguments) >= 6 && arguments[0] == "client":
		err = client(arguments[1:])
	case len(arguments) == 4 && arguments[0] == "proxy":
		err = proxy(arguments[1], arguments[2], arguments[3])
	default:
		err = fmt.Errorf("no such arguments: %q", arguments)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
