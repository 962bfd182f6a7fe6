package deploy

// Ours fails once the deployment is somebody else's, as one that is attached to
// can become. It asks nobody, and says nothing of whether the deployment is whole.
func (d *deployment) Ours() error {
	if d.parts.Check == nil {
		return nil
	}
	return d.parts.Check()
}
