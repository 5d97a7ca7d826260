// Package check holds the manifests of deploy/ to the types that they are read with: those of
// Kubernetes, of the Prometheus operator, and of Docker Compose. It is a module of its own, so that
// none of them is a requirement of Rota.
package check
