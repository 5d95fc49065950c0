//! Tests the files that are shipped with the programs: chart, manifests, alerts and documents.

mod alerts;
mod chart;
mod deploy;
mod manual;
