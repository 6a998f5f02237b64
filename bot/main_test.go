package bot_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests live at once than there are processors, since they wait more than they work. Who says
// -parallel is right.
func TestMain(m *testing.M) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
