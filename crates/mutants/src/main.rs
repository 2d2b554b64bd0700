//! Rewrites the sources of a copy of the workspace so that one build holds many mutants, each asleep until
//! `oncebox_core::mutants::alive`, which only the copy has, is asked for its number. `scripts/mutants --rust` makes the copy, builds it and runs it.
//!
//! ```text
//! oncebox-mutants ORIGINAL COPY --seed N --sample N [--without ID,ID] FOLDER…
//! ```
//!
//! The last line of its output is a JSON array that names the mutants. A sample depends on the seed and the sources alone;
//! `--without` leaves out what didn't compile, and no other mutant changes its number.

mod find;
mod site;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use site::{Site, Told, woven};

struct Asked {
    original: PathBuf,
    copy: PathBuf,
    seed: u64,
    sample: usize,
    without: HashSet<usize>,
    folders: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let asked = asked()?;
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut all: Vec<(String, String, Site)> = Vec::new();
    for folder in &asked.folders {
        for path in sources(&asked.original.join(folder))? {
            let name = path.strip_prefix(&asked.original)?.to_string_lossy().into_owned();
            // The switch itself, and what is there for other proofs.
            if name.ends_with("mutants.rs") || name.ends_with("planted.rs") || name.ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            let file = syn::parse_file(&text).with_context(|| format!("cannot parse {name}"))?;
            let mut counts: HashMap<String, usize> = HashMap::new();
            for site in find::sites(&text, &file) {
                let plain = format!("{name} {}: {}", site.function, site.name);
                let count = counts.entry(plain.clone()).or_default();
                *count += 1;
                let key = if *count == 1 { plain } else { format!("{plain} #{count}") };
                all.push((name.clone(), key, site));
            }
            texts.insert(name, text);
        }
    }

    let total = all.len();
    let chosen = sample(total, asked.sample, asked.seed);
    let mut by_file: BTreeMap<&str, Vec<(usize, &Site)>> = BTreeMap::new();
    let mut keys: HashMap<usize, &str> = HashMap::new();
    for &id in &chosen {
        let (file, key, site) = &all[id];
        if !asked.without.contains(&id) {
            by_file.entry(file).or_default().push((id, site));
            keys.insert(id, key);
        }
    }
    let mut told = Vec::new();
    for (file, text) in &texts {
        let sites = by_file.get(file.as_str()).map_or(&[][..], Vec::as_slice);
        let question =
            if file.starts_with("crates/core/") { "crate::mutants::alive" } else { "::oncebox_core::mutants::alive" };
        let (rewritten, spans) = woven(text, sites, question);
        for ((id, site), bytes) in sites.iter().zip(spans) {
            told.push(Told { id: *id, key: keys[id].to_owned(), file: file.clone(), line: site.line, bytes });
        }
        let path = asked.copy.join(file);
        // What stays the same isn't built again.
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&rewritten) {
            std::fs::write(&path, rewritten).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    let switch = "crates/core/src/mutants.rs";
    let text = std::fs::read_to_string(asked.original.join(switch))? + include_str!("alive.rs.txt");
    if std::fs::read_to_string(asked.copy.join(switch)).ok().as_ref() != Some(&text) {
        std::fs::write(asked.copy.join(switch), text)?;
    }
    told.sort_by_key(|mutant| mutant.id);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{total} places, {} taken", told.len())?;
    writeln!(out, "{}", serde_json::to_string(&told)?)?;
    Ok(())
}

fn asked() -> anyhow::Result<Asked> {
    let mut given = std::env::args().skip(1);
    let mut places = Vec::new();
    let (mut seed, mut sample, mut without) = (1, 200, HashSet::new());
    while let Some(word) = given.next() {
        let mut value = || given.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => seed = value()?.parse().context("--seed is no number")?,
            "--sample" => sample = value()?.parse().context("--sample is no number")?,
            "--without" => {
                without = value()?.split(',').filter(|id| !id.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
            }
            _ => places.push(word),
        }
    }
    if places.len() < 3 {
        bail!("usage: oncebox-mutants ORIGINAL COPY --seed N --sample N [--without ID,ID] FOLDER…");
    }
    let folders = places.split_off(2);
    let (original, copy) = (PathBuf::from(&places[0]), PathBuf::from(&places[1]));
    Ok(Asked { original, copy, seed, sample, without, folders })
}

/// The Rust files under a folder, in the order of their names.
fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// So many of `total` numbers, the same ones for the same seed: the beginning of a shuffle.
fn sample(total: usize, size: usize, seed: u64) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..total).collect();
    let mut state = seed;
    let mut random = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    for at in 0..size.min(total) {
        let left = (total - at) as u64;
        let other = at + (random() % left) as usize;
        numbers.swap(at, other);
    }
    numbers.truncate(size);
    numbers
}
