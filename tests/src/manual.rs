//! Generates files from the command line, the table of configuration keys and the metrics: manual
//! pages, the references of the keys and of the metrics, the JSON Schema of the keys, and the
//! values of the chart.

use std::io;
use std::path::Path;

mod chart;
mod metrics;
mod pages;
mod reference;
mod schema;

/// Returns every file by its path in the repository at `root`. Some are generated only in part.
pub fn files(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut command = nodepulse::testing::documented();
    command.build();
    let mut files = pages::pages(&command)?;
    files.extend(pages::completions(&command)?);
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    let document = read(reference::PATH)?;
    files.push((reference::PATH.to_owned(), reference::document(&document)?));
    let metrics = metrics::document(&read(metrics::PATH)?)?;
    files.push((metrics::PATH.to_owned(), metrics));
    let table = chart::document(&read(chart::PATH)?, &read(chart::VALUES)?)?;
    files.push((chart::PATH.to_owned(), table));
    files.push((schema::PATH.to_owned(), schema::file()));
    files.push((schema::RESTART.to_owned(), schema::restart()));
    let values = read(schema::VALUES)?;
    files.push((schema::VALUES.to_owned(), schema::values(&values)?));
    Ok(files)
}

/// Replaces the text between the first `begin` and the `end` after it by `content`.
fn replaced(text: &str, begin: &str, content: &str, end: &str) -> io::Result<String> {
    let none = || io::Error::other(format!("no {begin:?} … {end:?}"));
    let (before, rest) = text.split_once(begin).ok_or_else(none)?;
    let (_, after) = rest.split_once(end).ok_or_else(none)?;
    Ok(format!("{before}{begin}{content}{end}{after}"))
}
