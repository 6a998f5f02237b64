//go:build embedded

package main

import _ "embed"

//go:embed inside.bin
var insideBinary []byte

func insideProgram() []byte { return insideBinary }
