//! The real program against an API server over the network: the embedded one, or a real one.
//!
//! By default each scenario has a separate embedded server. With
//! `NODEPULSE_E2E_KUBECONFIG=… cargo xtask test cluster` they all go to the cluster that this
//! kubeconfig names, as an administrator, who may also impersonate others: what the embedded one
//! is believed to do, the real one is seen to do. `policy` runs on a real one alone, since the
//! embedded one has no admission policies; so does `chart`, which Helm installs.
//!
//! Others write there too: [`neighbours`] do what a control plane, a kubelet and
//! node-problem-detector do to a scenario's objects, on both servers. What a scenario expects is
//! therefore about what the agent writes, or what the scenario itself does.
//!
//! Everything made there has `nodepulse-e2e` in its name and is deleted afterwards; the objects of
//! `deploy/kustomize` that are not about a node become as shipped, and stay.

mod answers;
mod caller;
mod certificate;
mod chart;
mod companion;
mod kubelet;
mod neighbours;
mod node;
mod policy;
mod release;
mod running;
mod shipped;
mod stage;
