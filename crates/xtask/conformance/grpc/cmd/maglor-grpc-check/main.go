// Command maglor-grpc-check runs what the interop client of grpc-go does not: large messages,
// deadlines and cancellations as the server sees them, and more streams than a connection takes.
//
//	maglor-grpc-check -serve 127.0.0.1:0          a server; prints its address
//	maglor-grpc-check -target ADDR [-ca FILE]     the cases; one line each, exit 1 if one failed
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
)

// Above the default of 4 MiB, which the payload of 4 MB and its envelope come close to.
const maxMessage = 16 << 20

func main() {
	serve := flag.String("serve", "", "address to serve on")
	target := flag.String("target", "", "address to call")
	ca := flag.String("ca", "", "certificate authority of the target; plain text without")
	flag.Parse()
	var err error
	switch {
	case *serve != "":
		err = runServer(*serve)
	case *target != "":
		err = runClient(*target, *ca)
	default:
		err = fmt.Errorf("-serve or -target is needed")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runServer(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	// Connections are renewed all the time; streams may finish.
	age := keepalive.ServerParameters{MaxConnectionAge: 300 * time.Millisecond}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.KeepaliveParams(age))
	testgrpc.RegisterTestServiceServer(server, newWitness())
	return server.Serve(listener)
}

func runClient(target, ca string) error {
	transport := insecure.NewCredentials()
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		transport = credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost"})
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := testgrpc.NewTestServiceClient(connection)
	failed := 0
	for _, c := range cases {
		started := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		err := c.run(ctx, client)
		cancel()
		if err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", c.name, err)
			continue
		}
		fmt.Printf("PASS %s (%d ms)\n", c.name, time.Since(started).Milliseconds())
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases failed", failed, len(cases))
	}
	return nil
}
