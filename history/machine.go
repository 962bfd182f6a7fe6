package history

// A Machine is what clients and local servers ran on. What is not known is empty.
type Machine struct {
	OS     string `json:"os"`               // as Go calls it: linux, darwin
	Arch   string `json:"arch"`             // as Go calls it: amd64, arm64
	Kernel string `json:"kernel,omitempty"` // its release
	CPUs   int    `json:"cpus"`             // that the program may use
	Go     string `json:"go"`               // what lockchaos was built with
}
