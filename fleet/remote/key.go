package remote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"time"
)

// A Key is what a coordinator and its workers share: a secret, of which both make the authority of their certificates.
type Key struct{ authority ed25519.PrivateKey }

// leastKey is the size of the least secret, in bytes.
const leastKey = 32

// ReadKey reads the key in a file, which is whatever the file has.
func ReadKey(path string) (Key, error) {
	secret, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("read the key: %w", err)
	}
	if secret = bytes.TrimSpace(secret); len(secret) < leastKey {
		return Key{}, fmt.Errorf("read the key: %s has %d bytes, and a key at least %d: head -c 32 /dev/urandom | base64 > FILE makes one", path, len(secret), leastKey)
	}
	seed := sha256.Sum256(append([]byte("authority "), secret...))
	return Key{ed25519.NewKeyFromSeed(seed[:])}, nil
}

// config has a certificate of its own, and takes those of the same authority alone. They began two days ago, for machines
// whose clocks differ.
func (k Key) config() (*tls.Config, error) {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lockchaos key"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().AddDate(0, 0, -2), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	leaf := *authority
	leaf.Subject, leaf.DNSNames, leaf.IsCA, leaf.KeyUsage = pkix.Name{CommonName: service}, []string{service}, false, x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	root, err := x509.CreateCertificate(rand.Reader, authority, authority, k.authority.Public(), k.authority)
	if err != nil {
		return nil, fmt.Errorf("make the authority of the key: %w", err)
	}
	if authority, err = x509.ParseCertificate(root); err != nil {
		return nil, fmt.Errorf("make the authority of the key: %w", err)
	}
	public, private, _ := ed25519.GenerateKey(nil) // it never fails
	certificate, err := x509.CreateCertificate(rand.Reader, &leaf, authority, public, k.authority)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
		ServerName: service, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}
