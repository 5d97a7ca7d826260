// Command which prints the directory of the Postgres server that devdb would
// run, or says how to come by one and exits with 1. The set-up script asks it.
package main

import (
	"fmt"
	"os"

	"rota/internal/devdb"
)

func main() {
	bin, err := devdb.Find()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(bin.Dir)
}
