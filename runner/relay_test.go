package runner_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/runner"
)

// TestADoorHasSoManyConnectionsAtOnce: each one more would be a descriptor and memory of pilder's, and so of everybody.
func TestADoorHasSoManyConnectionsAtOnce(t *testing.T) {
	var came atomic.Int64
	o := newOffice(t, "knocks and knocks", func(cfg *runner.Config) {
		cfg.ServeModel = func(ctx context.Context, _ runner.ModelDoor, l net.Listener) error {
			defer context.AfterFunc(ctx, func() { l.Close() })()
			for {
				conn, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return err
				}
				defer conn.Close()
				came.Add(1)
			}
		}
	})
	o.work()
	o.write("one")
	if diff := cmp.Diff([]said{{Text: "200 open, 100 answered"}}, o.read(1)); diff != "" {
		t.Errorf("the agent saw (-want +got):\n%s", diff)
	}
	if n := came.Load(); n > 64 {
		t.Errorf("%d connections reached pilder at once", n)
	}
	o.clean()
}
