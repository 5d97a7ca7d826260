package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A cluster answers kubectl as an API server does: it says what it has, keeps what is created in a
// namespace that exists, and refuses what is not of the type that it says to be.
type cluster struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	objects  map[string]map[string]any // by their paths
	requests []string                  // what was asked for about objects: verb and path
	lenient  []string                  // what was written without asking for its fields to be checked
}

// more are the types that commands make beside the manifests.
var more = map[string]func() any{
	"v1 Namespace": func() any { return new(core.Namespace) },
	"v1 Secret":    func() any { return new(core.Secret) },
	"v1 Pod":       func() any { return new(core.Pod) },
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, objects: map[string]map[string]any{
		"/api/v1/namespaces/default": {"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "default"}},
	}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

// served are the resources of each group and version, by its path.
func served() map[string]*meta.APIResourceList {
	all := map[string]*meta.APIResourceList{}
	types := maps.Clone(kinds)
	maps.Copy(types, more)
	for name := range types {
		version, kind, _ := strings.Cut(name, " ")
		root := "/apis/" + version
		if version == "v1" {
			root = "/api/v1"
		}
		if all[root] == nil {
			all[root] = &meta.APIResourceList{TypeMeta: meta.TypeMeta{Kind: "APIResourceList"}, GroupVersion: version}
		}
		all[root].APIResources = append(all[root].APIResources, meta.APIResource{
			Name: plural(kind), SingularName: strings.ToLower(kind), Kind: kind, Namespaced: kind != "Namespace",
			Verbs: meta.Verbs{"create", "get", "list", "patch"},
		})
	}
	return all
}

func plural(kind string) string {
	return strings.Replace(strings.ToLower(kind)+"s", "policys", "policies", 1)
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	if list, ok := served()[r.URL.Path]; ok {
		answer(w, http.StatusOK, list)
		return
	}
	switch r.URL.Path {
	case "/version":
		answer(w, http.StatusOK, map[string]string{"major": "1", "minor": "32", "gitVersion": "v1.32.4"})
	case "/api":
		answer(w, http.StatusOK, meta.APIVersions{TypeMeta: meta.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/apis":
		answer(w, http.StatusOK, groups())
	case "/openapi/v2": // without types, so that older clients check nothing by themselves
		w.Header().Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
	case "/openapi/v3":
		answer(w, http.StatusOK, map[string]any{"paths": schemas()})
	default:
		if root, ok := strings.CutPrefix(r.URL.Path, "/openapi/v3"); ok {
			answer(w, http.StatusOK, checksFields(root))
			return
		}
		c.object(w, r)
	}
}

func groups() meta.APIGroupList {
	list := meta.APIGroupList{TypeMeta: meta.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for root, resources := range served() {
		if root == "/api/v1" {
			continue
		}
		group, version, _ := strings.Cut(resources.GroupVersion, "/")
		v := meta.GroupVersionForDiscovery{GroupVersion: resources.GroupVersion, Version: version}
		list.Groups = append(list.Groups, meta.APIGroup{Name: group, Versions: []meta.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}

func schemas() map[string]any {
	all := map[string]any{}
	for root := range served() {
		all[strings.TrimPrefix(root, "/")] = map[string]string{"serverRelativeURL": "/openapi/v3" + root}
	}
	return all
}

// checksFields says of each type that the server checks its fields, so that the client asks for it.
func checksFields(root string) map[string]any {
	paths := map[string]any{}
	resources := served()[root]
	if resources == nil {
		return paths
	}
	gv, err := schema.ParseGroupVersion(resources.GroupVersion)
	if err != nil {
		panic(err)
	}
	for _, r := range resources.APIResources {
		paths[root+"/namespaces/{namespace}/"+r.Name+"/{name}"] = map[string]any{"patch": map[string]any{
			"x-kubernetes-action":             "patch",
			"x-kubernetes-group-version-kind": map[string]string{"group": gv.Group, "version": gv.Version, "kind": r.Kind},
			"parameters":                      []any{map[string]any{"name": "fieldValidation", "in": "query", "schema": map[string]string{"type": "string"}}},
		}}
	}
	return map[string]any{"openapi": "3.0.0", "info": map[string]string{"title": "a cluster", "version": "1"}, "paths": paths}
}

// object answers what is about objects of ours.
func (c *cluster) object(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := strings.TrimSuffix(r.URL.Path, "/")
	c.requests = append(c.requests, r.Method+" "+at)
	switch object, there := c.objects[at]; {
	case r.Method == http.MethodGet && there:
		answer(w, http.StatusOK, object)
	case r.Method == http.MethodGet && path.Base(at) == "pods":
		answer(w, http.StatusOK, core.PodList{TypeMeta: meta.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
	case r.Method == http.MethodGet:
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound, at+" not found")
	case r.Method == http.MethodPost:
		c.create(w, r, at)
	case r.Method == http.MethodPatch && there && path.Base(path.Dir(at)) == "poddisruptionbudgets":
		answer(w, http.StatusOK, object) // its selector is always replaced, by the same
	default:
		refuse(w, http.StatusMethodNotAllowed, meta.StatusReasonMethodNotAllowed, r.Method+" "+at)
	}
}

func (c *cluster) create(w http.ResponseWriter, r *http.Request, at string) {
	body, err := io.ReadAll(r.Body)
	if err == nil && bytes.HasPrefix(body, []byte("k8s\x00")) {
		body, err = fromProtobuf(body[4:])
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, err.Error())
		return
	}
	var object map[string]any
	var head meta.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, err.Error())
		return
	}
	if err := json.Unmarshal(body, &head); err != nil {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, err.Error())
		return
	}
	kind := head.APIVersion + " " + head.Kind
	form := formOf(kind)
	root, rest, namespaced := strings.Cut(at, "/namespaces/")
	space, _, _ := strings.Cut(rest, "/")
	switch {
	case form == nil || path.Base(at) != plural(head.Kind):
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound, kind+" at "+at)
		return
	case namespaced && c.objects["/api/v1/namespaces/"+space] == nil, namespaced && head.Namespace != "" && head.Namespace != space:
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound, fmt.Sprintf("namespace %q not found at %s, for an object of %q", space, root, head.Namespace))
		return
	case c.objects[at+"/"+head.Name] != nil:
		refuse(w, http.StatusConflict, meta.StatusReasonAlreadyExists, head.Name+" already exists")
		return
	}
	decode(c.t, kind+" "+head.Name, body, form())
	if r.URL.Query().Get("fieldValidation") != "Strict" {
		c.lenient = append(c.lenient, kind)
	}
	c.objects[at+"/"+head.Name] = object
	answer(w, http.StatusCreated, object)
}

func formOf(kind string) func() any {
	if form := kinds[kind]; form != nil {
		return form
	}
	return more[kind]
}

// fromProtobuf is an object as JSON; of what a client knows by itself it sends the binary form.
func fromProtobuf(body []byte) ([]byte, error) {
	var u runtime.Unknown
	if err := u.Unmarshal(body); err != nil {
		return nil, err
	}
	form := formOf(u.APIVersion + " " + u.Kind)
	if form == nil {
		return nil, fmt.Errorf("what is a %s %s?", u.APIVersion, u.Kind)
	}
	object, ok := form().(interface {
		runtime.Object
		Unmarshal(data []byte) error
	})
	if !ok {
		return nil, fmt.Errorf("a %s has no binary form", u.Kind)
	}
	if err := object.Unmarshal(u.Raw); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(u.APIVersion, u.Kind))
	return json.Marshal(object)
}

func refuse(w http.ResponseWriter, code int32, reason meta.StatusReason, message string) {
	answer(w, int(code), meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: meta.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what)
}
