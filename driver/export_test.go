package driver

// Group is the process group of the driver, whose leader it is.
func (d *Driver) Group() int { return d.group }
