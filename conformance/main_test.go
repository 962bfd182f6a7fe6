package conformance_test

import (
	"testing"

	"github.com/lockchaos/lockchaos/internal/runtest"
)

func TestMain(m *testing.M) {
	runtest.FewAtOnce(4)
	runtest.Main(m)
}
