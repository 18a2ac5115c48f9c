//! No cycle among sibling modules, in any crate of the workspace.
//!
//! Module `a` depends on its sibling `b` if code in `a` or below it names a path in `b`, directly
//! or through a re-export. A parent's `mod` and `pub use` of its own children and tests do not
//! count. Paths are read from the text: `use` declarations, and paths in code that begin with
//! `crate` or `super`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

/// Names from the crate's root; the root itself is empty.
type ModulePath = Vec<String>;

#[test]
fn sibling_modules_form_no_cycle() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut roots = Vec::new();
    for room in ["crates", "emulator"] {
        for entry in std::fs::read_dir(workspace.join(room)).unwrap() {
            roots.push(entry.unwrap().path());
        }
    }
    roots.extend(["experiments", "benches", "python"].map(|folder| workspace.join(folder)));
    let mut cycles = Vec::new();
    let mut modules = 0;
    for folder in roots {
        for root in ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)) {
            if root.exists() {
                let source = CrateSource::load(&root);
                modules += source.modules.len();
                let found = source.cycles().into_iter();
                cycles.extend(found.map(|cycle| format!("{}: {cycle}", root.display())));
            }
        }
    }
    assert!(modules > 500, "only {modules} modules found");
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn cycles_through_re_exports_are_found() {
    let source = CrateSource::from_texts(&[
        ("", "mod a;\nmod b;\nmod c;\npub use b::Thing;\n"),
        ("a", "use crate::Thing;\npub struct Other;\n"),
        ("b", "use super::a::{Other, self};\npub struct Thing(Other);\n"),
        ("c", "fn f() { crate::a::g(); }\n"),
    ]);
    assert_eq!(source.cycles(), ["crate: a, b"]);
    let source = CrateSource::from_texts(&[
        ("", "mod a;\nmod b;\npub use b::Thing;\n"),
        ("a", "use crate::Thing;\n#[cfg(test)]\nmod tests {\n}\n"),
        ("b", "pub struct Thing;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
    ]);
    assert_eq!(source.cycles(), [""; 0]);
}

/// The modules of one crate, with the paths that each of them names.
struct CrateSource {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    /// Text without comments, tests and `use` declarations.
    code: String,
    /// Imported names, also private ones, and the absolute paths that they stand for.
    names: BTreeMap<String, ModulePath>,
    /// Absolute paths of modules whose names are all imported.
    globs: Vec<ModulePath>,
    /// Absolute paths that count as a dependency.
    uses: Vec<ModulePath>,
}

impl CrateSource {
    fn load(root: &Path) -> Self {
        let mut texts = BTreeMap::new();
        read_modules(Vec::new(), root, root.parent().unwrap(), &mut texts);
        Self::new(texts)
    }

    fn from_texts(texts: &[(&str, &str)]) -> Self {
        let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Self::new(texts.iter().map(|(name, text)| (path(name), without_tests(text))).collect())
    }

    fn new(texts: BTreeMap<ModulePath, String>) -> Self {
        let known: BTreeSet<ModulePath> = texts.keys().cloned().collect();
        let modules = texts.into_iter().map(|(path, text)| {
            let module = Module::parse(&path, &text, &known);
            (path, module)
        });
        Self { modules: modules.collect() }
    }

    /// The module that a path leads to, through re-exports.
    fn resolve(&self, path: &[String], depth: usize) -> Option<ModulePath> {
        if depth > 10 {
            return None;
        }
        let end = (0..=path.len()).rev().find(|&end| self.modules.contains_key(&path[..end]))?;
        let (module, rest) = (&self.modules[&path[..end]], &path[end..]);
        let Some((first, rest_of_it)) = rest.split_first() else { return Some(path.to_vec()) };
        if let Some(target) = module.names.get(first).filter(|target| target.as_slice() != path) {
            let target: ModulePath = target.iter().chain(rest_of_it).cloned().collect();
            return self.resolve(&target, depth + 1);
        }
        let through = module.globs.iter().find_map(|glob| {
            let target: ModulePath = glob.iter().chain(rest).cloned().collect();
            self.resolve(&target, depth + 1).filter(|found| found != glob)
        });
        Some(through.unwrap_or_else(|| path[..end].to_vec()))
    }

    /// Each cycle, as the parent module and the names of the siblings.
    fn cycles(&self) -> Vec<String> {
        let mut edges: BTreeMap<ModulePath, BTreeSet<(&str, String)>> = BTreeMap::new();
        for (path, module) in &self.modules {
            for target in module.uses.iter().filter_map(|target| self.resolve(target, 0)) {
                let common = path.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (path.get(common), target.get(common)) {
                    edges.entry(path[..common].to_vec()).or_default().insert((from, to.clone()));
                }
            }
        }
        let mut cycles = Vec::new();
        for (parent, edges) in &edges {
            let graph: DiGraphMap<&str, ()> = edges.iter().map(|(from, to)| (*from, to.as_str())).collect();
            for mut siblings in tarjan_scc(&graph).into_iter().filter(|siblings| siblings.len() > 1) {
                siblings.sort_unstable();
                let parent: Vec<&str> =
                    std::iter::once("crate").chain(parent.iter().map(String::as_str)).collect();
                cycles.push(format!("{}: {}", parent.join("::"), siblings.join(", ")));
            }
        }
        cycles
    }
}

impl Module {
    fn parse(path: &ModulePath, text: &str, known: &BTreeSet<ModulePath>) -> Self {
        let mut module = Self::default();
        let mut rest = text;
        while let Some((before, is_public, tree, after)) = next_use(rest) {
            module.code.push_str(before);
            for (names, alias) in expand(tree) {
                let Some(mut target) = absolute(path, &names, known) else { continue };
                if target.last().is_some_and(|last| last == "self") {
                    target.pop();
                }
                if target.last().is_some_and(|last| last == "*") {
                    target.pop();
                    module.globs.push(target.clone());
                } else if let Some(name) = alias.or_else(|| target.last().cloned()) {
                    module.names.entry(name).or_insert_with(|| target.clone());
                }
                if !(is_public && target.starts_with(path)) {
                    module.uses.push(target);
                }
            }
            rest = after;
        }
        module.code.push_str(rest);
        let words = module.code.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
        for word in words.filter(|word| word.starts_with("crate::") || word.starts_with("super::")) {
            let names: Vec<String> = word.trim_end_matches(':').split("::").map(str::to_owned).collect();
            module.uses.extend(absolute(path, &names, known));
        }
        module
    }
}

/// Finds the next `use` declaration: the text before it, whether it is public, its tree, and the
/// text after it.
fn next_use(text: &str) -> Option<(&str, bool, &str, &str)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let declaration = match trimmed.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or("", |(_, rest)| rest),
            Some(rest) => rest.trim_start(),
            None => trimmed,
        };
        if let Some(tree) = declaration.strip_prefix("use ") {
            let tree_start = start + (line.len() - tree.len());
            let length = text[tree_start..].find(';')?;
            let (tree, after) = (&text[tree_start..tree_start + length], &text[tree_start + length + 1..]);
            return Some((&text[..start], trimmed.starts_with("pub"), tree, after));
        }
        start += line.len();
    }
    None
}

/// The paths of a `use` tree, each with the name after `as`.
fn expand(tree: &str) -> Vec<(Vec<String>, Option<String>)> {
    let tree = tree.trim();
    let names = |path: &str| -> Vec<String> {
        path.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let Some((prefix, inner)) = tree.split_once('{') else {
        return match tree.split_once(" as ") {
            Some((path, alias)) => vec![(names(path), Some(alias.trim().to_owned()))],
            None => vec![(names(tree), None)],
        };
    };
    let prefix = names(prefix);
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut start, mut branches) = (0, 0, Vec::new());
    for (position, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&inner[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    branches.push(&inner[start..]);
    let branches = branches.into_iter().filter(|branch| !branch.trim().is_empty());
    let paths = branches.flat_map(expand);
    paths.map(|(path, alias)| (prefix.iter().cloned().chain(path).collect(), alias)).collect()
}

/// The path from the crate's root; `None` for a path into another crate.
fn absolute(module: &ModulePath, names: &[String], known: &BTreeSet<ModulePath>) -> Option<ModulePath> {
    let (first, rest) = names.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some(module.iter().chain(rest).cloned().collect()),
        "super" => {
            let up = names.iter().take_while(|name| *name == "super").count();
            let base = &module[..module.len().checked_sub(up)?];
            Some(base.iter().chain(&names[up..]).cloned().collect())
        }
        _ => {
            let child: ModulePath = module.iter().chain([first]).cloned().collect();
            known.contains(&child).then(|| module.iter().chain(names).cloned().collect())
        }
    }
}

/// Reads a module's file and those of its children.
fn read_modules(path: ModulePath, file: &Path, folder: &Path, texts: &mut BTreeMap<ModulePath, String>) {
    let text = without_tests(&std::fs::read_to_string(file).unwrap());
    let mut attribute = None;
    for line in text.lines().map(str::trim) {
        if let Some(at) = line.strip_prefix("#[path = \"") {
            attribute = at.strip_suffix("\"]").map(|name| file.parent().unwrap().join(name));
            continue;
        }
        let Some(declaration) = line.strip_suffix(';') else { continue };
        let declaration = match declaration.split_once("mod ") {
            Some(("" | "pub ", name)) => name,
            Some((visibility, name)) if visibility.starts_with("pub(") => name,
            _ => continue,
        };
        let name = declaration.to_owned();
        let usual = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
        let candidates: Vec<PathBuf> = attribute.take().into_iter().chain(usual).collect();
        if let Some(file) = candidates.iter().find(|file| file.exists()) {
            let child = path.iter().cloned().chain([name.clone()]).collect();
            read_modules(child, file, &folder.join(&name), texts);
        }
    }
    texts.insert(path, text);
}

/// The text without comments and without what follows `#[cfg(test)]` and `mod`.
fn without_tests(text: &str) -> String {
    let (mut kept, mut is_test) = (String::new(), false);
    for line in text.lines() {
        let line = line.split_once("//").map_or(line, |(code, _)| code);
        let trimmed = line.trim();
        if is_test && trimmed.contains("mod ") {
            if trimmed.ends_with('{') {
                break;
            }
            is_test = false;
            continue;
        }
        is_test = trimmed.starts_with("#[cfg(test)]")
            || trimmed.starts_with("#[cfg(all(test")
            || is_test && trimmed.starts_with("#[");
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}
