package shim

import (
	"os"
	"syscall"
)

// mapFile maps the beginning of a file into our memory.
func mapFile(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmap(page []byte) error { return syscall.Munmap(page) }

// look reads the number and the size of a file.
func look(file string) (inode, size int64, err error) {
	var stat syscall.Stat_t
	err = syscall.Stat(file, &stat)
	return int64(stat.Ino), stat.Size, err
}
