// Command streams serves gRPC's test service, or calls it at a steady rate and reports failures.
//
//	streams -serve ADDR    until SIGTERM; calls that have begun end before it does
//	streams -call ADDR     answers each line on standard input with one line of JSON: what has come of it since
//	                       the last one. After a line "finish" no long stream begins any more.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	serve := flag.String("serve", "", "address to serve on")
	call := flag.String("call", "", "address to call")
	long := flag.Duration("long", 20*time.Second, "how long long streams are")
	rate := flag.Float64("rate", 25, "calls a second of each client")
	flag.Parse()
	var err error
	switch {
	case *serve != "":
		err = runServer(*serve)
	case *call != "":
		err = runClients(*call, *long, *rate)
	default:
		err = fmt.Errorf("-serve or -call is needed")
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
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, echo{})
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	go func() {
		<-ends
		server.GracefulStop()
	}()
	return server.Serve(listener)
}

func runClients(address string, long time.Duration, rate float64) error {
	tally := newTally()
	start(address, long, rate, tally)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if lines.Text() == "finish" {
			tally.finish()
		}
		text, err := json.Marshal(tally.take())
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	}
	return lines.Err()
}
