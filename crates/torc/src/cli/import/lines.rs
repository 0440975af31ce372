//! Lines of GNU parallel and xargs: the commands that they would run, a job each.

use super::{Made, Out, literal, name_of, quoted};
use crate::error::{Error, Result};
use serde_json::json;
use std::io::Read as _;
use std::path::Path;

/// What `torc import parallel` takes.
#[derive(clap::Args, Debug)]
pub struct Parallel {
    /// The line, quoted as one word
    line: String,

    #[command(flatten)]
    pub(super) out: Out,
}

/// What `torc import xargs` takes.
#[derive(clap::Args, Debug)]
pub struct Xargs {
    /// The line, quoted as one word; what xargs would read comes from standard input
    line: String,

    #[command(flatten)]
    pub(super) out: Out,
}

/// Words of a line as a shell splits them, without doing anything else to them.
fn words(line: &str) -> std::result::Result<Vec<String>, String> {
    let (mut words, mut word, mut is_open) = (Vec::new(), String::new(), false);
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        match c {
            '\'' => {
                is_open = true;
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed".into()),
                    }
                }
            }
            '"' => {
                is_open = true;
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => word.extend(letters.next()),
                        Some(c) => word.push(c),
                        None => return Err("a double quote is not closed".into()),
                    }
                }
            }
            '\\' => {
                is_open = true;
                word.extend(letters.next());
            }
            c if c.is_whitespace() => {
                if is_open {
                    words.push(std::mem::take(&mut word));
                    is_open = false;
                }
            }
            c => {
                is_open = true;
                word.push(c);
            }
        }
    }
    if is_open {
        words.push(word);
    }
    Ok(words)
}

fn lines_of(path: &Path) -> Result<Vec<String>> {
    let text = match path.as_os_str() == "-" {
        true => standard_input()?,
        false => std::fs::read_to_string(path).map_err(Error::io("read", path))?,
    };
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

fn standard_input() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Error::io("read", "standard input"))?;
    Ok(text)
}

/// A spec of these commands.
fn spec_of(
    program: &str,
    commands: &[String],
    at_once: Option<u32>,
    notes: Vec<String>,
) -> Result<Made> {
    if commands.is_empty() {
        return Err(Error::usage("there is nothing to run: no argument was found"));
    }
    let name =
        name_of(Path::new(program).file_name().unwrap_or_default().to_string_lossy().as_ref());
    let width = commands.len().to_string().len();
    let jobs: Vec<_> = commands
        .iter()
        .enumerate()
        .map(|(at, command)| {
            let mut job =
                json!({"name": format!("{name}_{:0width$}", at + 1), "command": literal(command)});
            if at_once.is_some() {
                job["uses"] = json!(["at_once"]);
            }
            job
        })
        .collect();
    let mut spec = json!({"name": name, "jobs": jobs});
    if let Some(most) = at_once.filter(|most| *most > 0) {
        spec["limits"] = json!({"at_once": most});
    }
    Ok(Made { spec, notes })
}

/// Where the value of a replacement string comes from.
struct ValueSource {
    values: Vec<String>,
    is_linked: bool,
}

impl Parallel {
    /// The spec.
    pub(super) fn make(&self) -> Result<Made> {
        let all = words(&self.line).map_err(Error::usage)?;
        let mut rest = all.as_slice();
        if rest.first().is_some_and(|word| word == "parallel") {
            rest = &rest[1..];
        }
        let (mut at_once, mut notes, mut sources, mut is_linked) =
            (None, Vec::new(), Vec::new(), false);
        let mut at = 0;
        while let Some(word) = rest.get(at).filter(|word| word.starts_with('-')) {
            let value = |at: &mut usize, glued: &str| -> Result<String> {
                if !glued.is_empty() {
                    return Ok(glued.to_owned());
                }
                *at += 1;
                rest.get(*at)
                    .cloned()
                    .ok_or_else(|| Error::usage(format!("`{word}` needs a value")))
            };
            match word.as_str() {
                "--link" | "--xapply" => is_linked = true,
                "-k" | "--keep-order" | "--bar" | "--progress" | "--eta" | "--ungroup" | "-u" => {
                    notes.push(format!("`{word}` says nothing here"));
                }
                word if word.starts_with("-j") || word.starts_with("--jobs") => {
                    let glued = word.trim_start_matches("--jobs").trim_start_matches("-j");
                    let text = value(&mut at, glued.trim_start_matches('='))?;
                    match text.parse() {
                        Ok(number) => at_once = Some(number),
                        Err(_) => notes.push(format!("`-j {text}` is left to `torc run -j`")),
                    }
                }
                word if word.starts_with("-a") => {
                    let file = value(&mut at, &word[2..])?;
                    sources.push(ValueSource {
                        values: lines_of(Path::new(&file))?,
                        is_linked: false,
                    });
                }
                other => {
                    return Err(Error::usage_hint(
                        format!("the option `{other}` of parallel is not known here"),
                        "known are -j, -a, --link, -k and --bar; write other things into the spec",
                    ));
                }
            }
            at += 1;
        }
        let is_mark = |word: &String| [":::", "::::", ":::+", "::::+"].contains(&word.as_str());
        let end = rest[at..].iter().position(is_mark).map_or(rest.len(), |found| at + found);
        let template = rest[at..end].to_vec();
        let mut marks = end;
        while marks < rest.len() {
            let mark = rest[marks].as_str();
            let next =
                rest[marks + 1..].iter().position(is_mark).map_or(rest.len(), |n| marks + 1 + n);
            let given = &rest[marks + 1..next];
            let is_linked = mark.ends_with('+');
            match mark.starts_with("::::") {
                true => {
                    for file in given {
                        sources.push(ValueSource { values: lines_of(Path::new(file))?, is_linked });
                    }
                }
                false => sources.push(ValueSource { values: given.to_vec(), is_linked }),
            }
            marks = next;
        }
        if sources.is_empty() {
            sources.push(ValueSource { values: lines_of(Path::new("-"))?, is_linked: false });
        }
        let rows = combined(&sources, is_linked);
        let program = template.first().map_or("parallel", String::as_str);
        let commands: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(n, row)| command(&template, row, n + 1))
            .collect::<Result<_>>()?;
        spec_of(program, &commands, at_once, notes)
    }
}

/// Every combination; linked sources go along with the one before them.
fn combined(sources: &[ValueSource], all_linked: bool) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = vec![Vec::new()];
    let mut groups: Vec<Vec<&ValueSource>> = Vec::new();
    for source in sources {
        match groups.last_mut() {
            Some(group) if source.is_linked || all_linked => group.push(source),
            _ => groups.push(vec![source]),
        }
    }
    for group in groups {
        // The longest source counts; shorter ones start over.
        let length = group.iter().map(|source| source.values.len()).max().unwrap_or(0);
        let tuple = |n: usize| -> Vec<String> {
            let of = group.iter().filter(|source| !source.values.is_empty());
            of.map(|source| source.values[n % source.values.len()].clone()).collect()
        };
        rows = rows
            .iter()
            .flat_map(|row| (0..length).map(move |n| (row.clone(), n)))
            .map(|(row, n)| row.into_iter().chain(tuple(n)).collect())
            .collect();
    }
    rows
}

/// The command of one combination. Without a template the argument is the command.
fn command(template: &[String], row: &[String], number: usize) -> Result<String> {
    if template.is_empty() {
        return Ok(row.join(" "));
    }
    let text = template.join(" ");
    let has_place = text.contains('{') && places(&text).next().is_some();
    let all: Vec<String> = row.iter().map(|value| quoted(value)).collect();
    if !has_place {
        return Ok(format!("{text} {}", all.join(" ")));
    }
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('{') {
        out += &rest[..at];
        let after = &rest[at..];
        let end = after.find('}').map(|end| end + 1);
        let Some(place) = end.map(|end| &after[..end]) else { break };
        match value_of(place, row, number) {
            Some(value) => {
                out +=
                    &value.ok_or_else(|| Error::usage(format!("`{place}` names no argument")))?;
            }
            None => out += place,
        }
        rest = &after[place.len()..];
    }
    Ok(out + rest)
}

fn places(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(|(at, _)| {
        let place = &text[at..at + text[at..].find('}')? + 1];
        value_of(place, &["x".to_owned()], 1).map(|_| place)
    })
}

/// What stands for a replacement string; the outer None: it is none.
fn value_of(place: &str, row: &[String], number: usize) -> Option<Option<String>> {
    let inner = place.strip_prefix('{')?.strip_suffix('}')?;
    if inner == "#" {
        return Some(Some(number.to_string()));
    }
    let digits = inner.chars().take_while(char::is_ascii_digit).count();
    let (which, way) = inner.split_at(digits);
    let without_end = |text: &str| match text.rsplit_once('.') {
        Some((stem, end)) if !end.contains('/') && !stem.is_empty() => stem.to_owned(),
        _ => text.to_owned(),
    };
    let base = |text: &str| text.rsplit('/').next().unwrap_or(text).to_owned();
    let shape = |text: &str| {
        Some(match way {
            "" => text.to_owned(),
            "." => without_end(text),
            "/" => base(text),
            "/." => without_end(&base(text)),
            "//" => text.rsplit_once('/').map_or_else(|| ".".to_owned(), |(dir, _)| dir.to_owned()),
            _ => return None,
        })
    };
    shape("x")?;
    let chosen: Option<Vec<&String>> = match which.parse::<usize>() {
        Ok(nth) => row.get(nth.wrapping_sub(1)).map(|value| vec![value]),
        Err(_) => Some(row.iter().collect()),
    };
    Some(chosen.map(|values| {
        let shaped = values.iter().filter_map(|value| shape(value)).map(|value| quoted(&value));
        shaped.collect::<Vec<_>>().join(" ")
    }))
}

impl Xargs {
    /// The spec.
    pub(super) fn make(&self) -> Result<Made> {
        let all = words(&self.line).map_err(Error::usage)?;
        let mut rest = all.as_slice();
        if rest.first().is_some_and(|word| word == "xargs") {
            rest = &rest[1..];
        }
        let (mut at_once, mut per_command, mut replaced, mut file, mut by_line, mut by_zero) =
            (None, None, None, None, false, false);
        let mut at = 0;
        while let Some(word) = rest.get(at).filter(|word| word.starts_with('-') && word.len() > 1) {
            let (letter, glued) = match word.strip_prefix("--") {
                Some(long) => {
                    let (name, value) = long.split_once('=').unwrap_or((long, ""));
                    (letter_of(name), value)
                }
                None => (word.chars().nth(1), &word[2..]),
            };
            let mut value = || -> Result<String> {
                if !glued.is_empty() {
                    return Ok(glued.to_owned());
                }
                at += 1;
                rest.get(at).cloned().ok_or_else(|| Error::usage(format!("`{word}` needs a value")))
            };
            let number = |text: String| -> Result<u32> {
                text.parse().map_err(|_| Error::usage(format!("`{text}` of `{word}` is no number")))
            };
            match letter {
                Some('P') => at_once = Some(number(value()?)?),
                Some('n') => per_command = Some(number(value()?)?),
                Some('L') => (per_command, by_line) = (Some(number(value()?)?), true),
                Some('I') => replaced = Some(value()?),
                Some('a') => file = Some(value()?),
                Some('0') => by_zero = true,
                Some('t' | 'r') => {}
                _ => {
                    return Err(Error::usage_hint(
                        format!("the option `{word}` of xargs is not known here"),
                        "known are -P, -n, -L, -I, -a, -0, -r and -t",
                    ));
                }
            }
            at += 1;
        }
        let template = &rest[at.min(rest.len())..];
        let text = match &file {
            Some(path) => std::fs::read_to_string(path).map_err(Error::io("read", path))?,
            None => standard_input()?,
        };
        let items: Vec<String> = match (by_zero, by_line || replaced.is_some()) {
            (true, _) => {
                text.split('\0').filter(|item| !item.is_empty()).map(ToOwned::to_owned).collect()
            }
            (_, true) => text
                .lines()
                .map(|line| line.trim().to_owned())
                .filter(|line| !line.is_empty())
                .collect(),
            _ => words(&text).map_err(Error::usage)?,
        };
        let program = template.first().map_or("echo", String::as_str);
        let fixed: Vec<String> = template.iter().map(|word| quoted(word)).collect();
        let fixed = if fixed.is_empty() { "echo".to_owned() } else { fixed.join(" ") };
        let commands: Vec<String> = match &replaced {
            Some(mark) => items
                .iter()
                .map(|item| {
                    let words =
                        template.iter().map(|word| quoted(&word.replace(mark.as_str(), item)));
                    words.collect::<Vec<_>>().join(" ")
                })
                .collect(),
            None => {
                // Without -n xargs would put as many as fit into one command.
                let size = per_command.map_or(items.len().max(1), |n| n.max(1) as usize);
                let join = |part: &[String]| {
                    let words: Vec<String> = match by_line {
                        // A line is several words.
                        true => part.to_vec(),
                        false => part.iter().map(|item| quoted(item)).collect(),
                    };
                    format!("{fixed} {}", words.join(" "))
                };
                items.chunks(size).map(join).collect()
            }
        };
        spec_of(program, &commands, at_once.filter(|most| *most > 0), Vec::new())
    }
}

fn letter_of(long: &str) -> Option<char> {
    let known = [
        ("max-procs", 'P'),
        ("max-args", 'n'),
        ("max-lines", 'L'),
        ("replace", 'I'),
        ("arg-file", 'a'),
        ("null", '0'),
        ("no-run-if-empty", 'r'),
        ("verbose", 't'),
    ];
    known.into_iter().find(|(name, _)| *name == long).map(|(_, letter)| letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(line: &str) -> Vec<String> {
        let out = Out { output: None, force: false };
        let made = Parallel { line: line.into(), out }.make().map_err(|error| error.to_string());
        let made = made.expect("it is made");
        let jobs = made.spec["jobs"].as_array().expect("a list").clone();
        jobs.iter().map(|job| job["command"].as_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn parallel_combines_links_and_shapes_its_arguments() {
        assert_eq!(commands("parallel -j2 gzip ::: a 'b c'"), ["gzip a", "gzip 'b c'"]);
        assert_eq!(commands("parallel echo {1}-{2} ::: a b ::: x y").len(), 4);
        assert_eq!(commands("parallel echo {1}-{2} ::: a b :::+ x y"), ["echo a-x", "echo b-y"]);
        assert_eq!(
            commands("parallel convert {} {.}.png {/.} {//} {#} ::: d/a.jpg"),
            ["convert d/a.jpg d/a.png a d 1"]
        );
        assert_eq!(commands("parallel ::: 'echo 1' 'echo 2'"), ["echo 1", "echo 2"]);
    }
}
