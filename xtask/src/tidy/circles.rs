//! No circle of imports between files. A file names another if one of its paths leads to an item that
//! the other defines; what it names of the modules that contain it does not count, since a module and
//! its parent belong together.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::code::{NamedPath, imports, paths, product_code};

/// Where each crate's files are, and its root among them.
const CRATES: &[(&str, &str)] = &[
    ("agent/src/", "lib"),
    ("agent/core/src/", "lib"),
    ("agent/io/src/", "lib"),
    ("agent/linux/src/", "lib"),
    ("agent/kube/src/", "lib"),
    ("agent-common/src/", "lib"),
    ("agent-ebpf/src/", "main"),
];

/// Re-exports are followed this far.
const MAX_REEXPORTS: usize = 8;

pub fn broken(sources: &[Source]) -> Vec<String> {
    let circles = |&(directory, root): &(&str, &str)| {
        let tree = Tree::new(sources, directory, root);
        let edges = tree.edges();
        let circles = circles(&edges);
        let report = |circle| report(circle, &edges, &tree);
        circles.iter().map(report).collect::<Vec<_>>()
    };
    CRATES.iter().flat_map(circles).collect()
}

/// One file of product code.
struct Module<'a> {
    file: &'a str,
    code: String,
    /// What its `use` statements bring into scope, by the name that they give it.
    imports: BTreeMap<String, String>,
}

/// The modules of a crate by their paths, such as `api::credentials`; that of the root is empty.
#[derive(Default)]
struct Tree<'a> {
    modules: BTreeMap<String, Module<'a>>,
}

/// A line that names an item of another file.
struct Import {
    from: String,
    to: String,
    line: usize,
    item: String,
}

impl<'a> Tree<'a> {
    fn new(sources: &'a [Source], directory: &str, root: &str) -> Self {
        let files: BTreeMap<&str, &Source> = sources
            .iter()
            .filter(|source| source.is_product())
            .filter_map(|source| {
                let file = source.path.strip_prefix(directory)?.strip_suffix(".rs")?;
                Some((file, source))
            })
            .collect();
        let mut tree = Self::default();
        if let Some(source) = files.get(root) {
            tree.insert(String::new(), source, &files);
        }
        tree
    }

    /// Inserts the module and those that it declares. Modules that only tests declare are left out.
    fn insert(&mut self, module: String, source: &'a Source, files: &BTreeMap<&str, &'a Source>) {
        let code = product_code(&source.text);
        for name in declared(&code) {
            let child = join(&module, name);
            if let Some(source) = files.get(child.replace("::", "/").as_str()) {
                self.insert(child, source, files);
            }
        }
        let found = Module {
            file: &source.path,
            imports: imports(&code).into_iter().collect(),
            code,
        };
        self.modules.insert(module, found);
    }

    fn file(&self, module: &str) -> &'a str {
        self.modules.get(module).map_or("", |module| module.file)
    }

    fn edges(&self) -> Vec<Import> {
        let named_by = |(from, module): (&String, &Module<'_>)| {
            let edge = |named: NamedPath| {
                let (to, item) = self.resolve(from, &named.path, MAX_REEXPORTS)?;
                let other = *from != to && !contains(&to, from);
                other.then(|| Import {
                    from: from.clone(),
                    to,
                    line: named.line,
                    item,
                })
            };
            paths(&module.code)
                .into_iter()
                .filter_map(edge)
                .collect::<Vec<_>>()
        };
        self.modules.iter().flat_map(named_by).collect()
    }

    /// The module that defines what `module` calls `path`, and the item's name there. None for other
    /// crates, local names, and a module itself: each item of it that is used is a separate path.
    fn resolve(&self, module: &str, path: &str, reexports: usize) -> Option<(String, String)> {
        let glob = path.ends_with("::");
        let path = path.strip_suffix("::self").unwrap_or(path);
        let path = self.absolute(module, path.trim_end_matches(':'), reexports)?;
        let mut owner = String::new();
        let mut rest = path.split("::");
        while let Some(name) = rest.next() {
            let child = join(&owner, name);
            if self.modules.contains_key(&child) {
                owner = child;
                continue;
            }
            let import = self.modules.get(&owner)?.imports.get(name);
            let reexported = import
                .filter(|_| reexports > 0)
                .map(|import| rest.fold(import.clone(), |path, name| join(&path, name)))
                .and_then(|path| self.resolve(&owner, &path, reexports - 1));
            return Some(reexported.unwrap_or_else(|| (owner, name.to_owned())));
        }
        glob.then(|| (owner, "*".to_owned()))
    }

    /// The path from the root of the crate.
    fn absolute(&self, module: &str, path: &str, reexports: usize) -> Option<String> {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        match first {
            "crate" => Some(rest.to_owned()),
            "self" => Some(join(module, rest)),
            "super" => {
                let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
                if rest.starts_with("super") {
                    self.absolute(parent, rest, reexports)
                } else {
                    Some(join(parent, rest))
                }
            }
            _ if self.modules.contains_key(&join(module, first)) => Some(join(module, path)),
            _ => {
                let import = self.modules.get(module)?.imports.get(first)?;
                // `use E::A` brings in a name that begins with a name that is in scope.
                let reexports = reexports.checked_sub(1)?;
                self.absolute(module, &join(import, rest), reexports)
            }
        }
    }
}

/// The names of `mod name;`.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.split(';').filter_map(|statement| {
        let (before, name) = statement.rsplit_once("mod ")?;
        let whole = before.is_empty() || before.ends_with(char::is_whitespace);
        (whole && !name.contains(char::is_whitespace)).then_some(name)
    })
}

fn join(module: &str, name: &str) -> String {
    match (module, name) {
        ("", path) | (path, "") => path.to_owned(),
        _ => format!("{module}::{name}"),
    }
}

/// Whether `outer` is a module around `inner`.
fn contains(outer: &str, inner: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    outer.is_empty() || rest.is_some_and(|rest| rest.starts_with("::"))
}

/// The strongly connected components of two modules or more.
fn circles(edges: &[Import]) -> Vec<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in edges {
        next.entry(&edge.from).or_default().push(&edge.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|module| (*module, reached(module, &next)))
        .collect();
    let circles: BTreeSet<BTreeSet<&str>> = reached
        .iter()
        .map(|(module, there)| {
            let back = |other: &&&str| reached.get(**other).is_some_and(|r| r.contains(module));
            there.iter().filter(back).copied().collect()
        })
        .filter(|circle: &BTreeSet<&str>| !circle.is_empty())
        .collect();
    circles.into_iter().collect()
}

fn reached<'a>(from: &str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = next.get(from).cloned().unwrap_or_default();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(next.get(module).into_iter().flatten());
        }
    }
    reached
}

/// The cure, then every line that ties the circle.
fn report(circle: &BTreeSet<&str>, edges: &[Import], tree: &Tree<'_>) -> String {
    // The first line of each item.
    let mut ties: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for edge in edges {
        if circle.contains(edge.from.as_str()) && circle.contains(edge.to.as_str()) {
            let items = ties.entry((&edge.from, &edge.to)).or_default();
            items.entry(&edge.item).or_insert(edge.line);
        }
    }
    let Some((tie, items)) = ties.iter().min_by_key(|(_, items)| items.len()) else {
        return String::new();
    };
    let mut text = format!(
        "{}:{}: {} files import each other in a circle. Cure: move {} out of {} to where it \
         belongs, or pass it as a parameter",
        tree.file(tie.0),
        items.values().min().unwrap_or(&1),
        circle.len(),
        Vec::from_iter(items.keys().map(|item| format!("`{item}`"))).join(", "),
        tree.file(tie.1),
    );
    for ((from, to), items) in &ties {
        for (item, line) in items {
            let (from, to) = (tree.file(from), tree.file(to));
            text.push_str(&format!("\n    {from}:{line}: names `{item}` of {to}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    /// Files of agent-common, each with its text.
    fn crate_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| source(&format!("agent-common/src/{path}.rs"), text))
            .collect();
        broken(&files)
    }

    #[test]
    fn a_circle_is_reported_with_its_lines_and_the_weakest_import() {
        let found = crate_of(&[
            ("lib", "mod a;\nmod b;\nmod c;"),
            ("a", "use crate::b::{One, Two};\nfn f() { super::b::f() }"),
            ("b", "\nuse super::c;\nfn f() { c::g() }"),
            ("c", "use crate::a;\n\nfn g() { a::f() }\nfn h() { a::g() }"),
        ]);
        let expected = "\
agent-common/src/b.rs:3: 3 files import each other in a circle. Cure: move `g` out of \
agent-common/src/c.rs to where it belongs, or pass it as a parameter
    agent-common/src/a.rs:1: names `One` of agent-common/src/b.rs
    agent-common/src/a.rs:1: names `Two` of agent-common/src/b.rs
    agent-common/src/a.rs:2: names `f` of agent-common/src/b.rs
    agent-common/src/b.rs:3: names `g` of agent-common/src/c.rs
    agent-common/src/c.rs:3: names `f` of agent-common/src/a.rs
    agent-common/src/c.rs:4: names `g` of agent-common/src/a.rs";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn two_circles_are_reported_separately() {
        let found = crate_of(&[
            ("lib", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::B; use crate::c::C;"),
            ("b", "use crate::a::A;"),
            ("c", "use crate::d::D;"),
            ("d", "use crate::c::C;"),
        ]);
        let lines: Vec<_> = found.iter().map(|circle| circle.lines().count()).collect();
        assert_eq!(lines, [3, 3], "two imports each: {found:?}");
    }

    #[test]
    fn what_ties_two_files() {
        let table = [
            ("use crate::b::B;", true, "an import"),
            ("use super::b::B;", true, "the same, relative"),
            ("fn f() { crate::b::f() }", true, "a path in code"),
            (
                "use crate::b as other;\nfn f() { other::f() }",
                true,
                "an alias",
            ),
            ("use crate::Reexported;", true, "defined in `b`"),
            (
                "use crate::c::Renamed;",
                true,
                "defined in `b`, two re-exports away",
            ),
            ("use crate::d::Local;", false, "`d` names nothing"),
            (
                "use crate::{InRoot, Local as _};",
                false,
                "the root contains both",
            ),
            ("use crate::b::*;", true, "all of it"),
            ("use crate::b::{self};", false, "nothing is used of it"),
            (
                "use b::B;",
                false,
                "another crate, since `a` has no module `b`",
            ),
            (
                "#[cfg(doc)]\nuse crate::b::B;",
                false,
                "for a link in a comment",
            ),
            ("// use crate::b::B;", false, "a comment"),
            (
                "#[cfg(test)]\nmod tests { use crate::b::B; }",
                false,
                "a test",
            ),
        ];
        for (text, expected, why) in table {
            let found = crate_of(&[
                (
                    "lib",
                    "mod a;\nmod b;\npub mod c;\nmod d;\npub use b::Reexported;\nstruct InRoot;",
                ),
                ("a", text),
                ("b", "use crate::a::A;"),
                ("c", "pub use crate::Reexported as Renamed;"),
                ("d", "struct Local;"),
            ]);
            assert_eq!(!found.is_empty(), expected, "{text}: {why}: {found:?}");
        }
    }

    #[test]
    fn a_parent_may_name_its_children_and_they_its_items() {
        let parent = "pub mod child;\nmod other;\nuse child::C;\nstruct P;";
        let table = [
            ("use super::P;", "struct O;", false),
            (
                "use super::P;\nuse super::other::O;",
                "use super::P;",
                false,
            ),
            ("use super::other::O;", "use super::C;", true),
            ("use super::other::O;", "fn f() { super::child::f() }", true),
        ];
        for (child, other, expected) in table {
            let found = crate_of(&[
                ("lib", "mod parent;"),
                ("parent", parent),
                ("parent/child", child),
                ("parent/other", other),
            ]);
            assert_eq!(!found.is_empty(), expected, "{child} {other}: {found:?}");
        }
    }

    #[test]
    fn a_module_that_only_tests_declare_is_no_product_code() {
        let found = crate_of(&[
            ("lib", "mod a;\n#[cfg(test)]\nmod fixture;"),
            ("a", "use crate::fixture::F;"),
            ("fixture", "use crate::a::A;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
