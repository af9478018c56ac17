// Command maglor-xds-check is the other side of Maglor's xDS tests.
//
//	maglor-xds-check backends N        N gRPC servers
//	maglor-xds-check client TARGET     grpc-go's client of xds:///TARGET
//	maglor-xds-check server ADDRESS    go-control-plane's server of one service
//
// The first line of output says where it listens. Client and server are controlled over HTTP.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: maglor-xds-check backends|client|server ARGUMENT"))
	}
	var err error
	switch command, argument := os.Args[1], os.Args[2]; command {
	case "backends":
		err = backends(argument)
	case "client":
		err = callClient(argument)
	case "server":
		err = controlPlane(argument)
	default:
		err = fmt.Errorf("no command %q", command)
	}
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// backends serves gRPC's health service on as many ports as are wanted.
func backends(wanted string) error {
	count, err := strconv.Atoi(wanted)
	if err != nil {
		return err
	}
	done := make(chan error)
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		fmt.Print(listener.Addr(), " ")
		go func() { done <- server.Serve(listener) }()
	}
	fmt.Println()
	return <-done
}

// control serves HTTP, and says where.
func control() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, nil)
}
