package drivers_test

import (
	"testing"

	"github.com/lockchaos/lockchaos/internal/runtest"
)

func TestMain(m *testing.M) { runtest.Main(m) }
