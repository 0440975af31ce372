//! Shell texts with `${files.input.NAME}` and its relatives: cut once per definition, filled in
//! once per instance.

use super::catalog::Catalog;
use crate::diagnostic::nearest;
use crate::shell::{Quotes, Scanner, special};
use crate::template::{Quoting, Template, TemplateError};
use serde_json::Value;
use torc_model::plan::{list_variable, user_data_variable};

/// A shell text cut at its references.
#[derive(Debug)]
pub struct Command {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(Template),
    Reference(FileReference),
}

/// `${files.input.NAME}`.
#[derive(Debug)]
struct FileReference {
    kind: ReferenceKind,
    /// Without [`LIST`].
    name: Template,
    /// It ends with [`LIST`].
    is_list: bool,
    written: String,
    quotes: Quotes,
}

/// After the name of a file: a file with the paths, one per line, instead of the paths themselves.
const LIST: &str = ".list";

/// Linux takes no single argument of this many bytes or more.
pub const LONGEST_ARGUMENT: usize = 128 << 10;

/// What a reference names, and in which role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceKind {
    /// A file that is read.
    InputFile,
    /// A file that is written.
    OutputFile,
    /// User data that is read.
    InputUserData,
    /// User data that is written.
    OutputUserData,
}

impl ReferenceKind {
    const PREFIXES: [(&'static str, Self); 4] = [
        ("${files.input.", Self::InputFile),
        ("${files.output.", Self::OutputFile),
        ("${user_data.input.", Self::InputUserData),
        ("${user_data.output.", Self::OutputUserData),
    ];

    pub fn is_file(self) -> bool {
        matches!(self, Self::InputFile | Self::OutputFile)
    }
}

/// What came out of filling in a command.
#[derive(Debug, Default)]
pub struct Filled {
    /// The shell text.
    pub text: String,
    /// What it reads and writes, as indexes into the catalog.
    pub references: Vec<(ReferenceKind, u32)>,
    /// Paths that go into files of their own.
    pub lists: Vec<Vec<String>>,
    /// What is doubtful.
    pub doubts: Vec<ReferenceProblem>,
}

/// Something doubtful or wrong about a reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceProblem {
    /// The reference as written.
    pub written: String,
    /// What about it.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The command cannot be used.
    pub fatal: bool,
}

impl Command {
    /// Cuts a shell text at its references and placeholders.
    pub fn parse(text: &str, parameters: &[&str]) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut scanner = Scanner::default();
        let mut rest = text;
        while let Some((at, prefix, kind, length)) = next_reference(rest) {
            let (before, from) = rest.split_at(at);
            scanner.advance(before);
            pieces.push(Piece::Text(Template::parse(before, parameters, Quoting::Plain)?));
            let written = &from[..length];
            let name = &written[prefix..length - 1];
            let stem = name.strip_suffix(LIST).filter(|_| kind.is_file());
            let is_list = stem.is_some();
            let name = Template::parse(stem.unwrap_or(name), parameters, Quoting::Plain)?;
            pieces.push(Piece::Reference(FileReference {
                kind,
                name,
                is_list,
                written: written.into(),
                quotes: scanner.quotes(),
            }));
            rest = &from[length..];
        }
        pieces.push(Piece::Text(Template::parse(rest, parameters, Quoting::Plain)?));
        Ok(Self { pieces })
    }

    /// Which parameters the text uses outside of references.
    pub fn uses(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces
            .iter()
            .filter_map(|piece| if let Piece::Text(text) = piece { Some(text) } else { None })
            .flat_map(Template::uses)
    }

    /// Which parameters occur anywhere.
    pub fn mentions(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().flat_map(|piece| match piece {
            Piece::Text(text) => text.uses().collect::<Vec<_>>(),
            Piece::Reference(reference) => reference.name.uses().collect(),
        })
    }

    /// Fills in the rows of one instance: text from the first, references from all of them,
    /// separated by spaces. The job has these lists already.
    pub fn fill(
        &self,
        rows: &[Vec<&Value>],
        catalog: &Catalog,
        lists: Vec<Vec<String>>,
    ) -> Result<Filled, ReferenceProblem> {
        let mut out = Filled { lists, ..Filled::default() };
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.text.push_str(
                    &text
                        .fill(&rows[0])
                        .map_err(|message| ReferenceProblem::fatal(String::new(), message))?,
                ),
                Piece::Reference(reference) => reference.fill(rows, catalog, &mut out)?,
            }
        }
        Ok(out)
    }
}

/// Position, length of the prefix, kind and whole length of the next reference.
pub(crate) fn next_reference(text: &str) -> Option<(usize, usize, ReferenceKind, usize)> {
    text.match_indices("${").find_map(|(at, _)| {
        let (prefix, kind, length) = first_reference(&text[at..])?;
        Some((at, prefix, kind, length))
    })
}

/// Length of the prefix, kind and whole length of the reference that a text begins with; braces
/// inside are placeholders.
fn first_reference(text: &str) -> Option<(usize, ReferenceKind, usize)> {
    let (prefix, kind) =
        ReferenceKind::PREFIXES.iter().find(|(prefix, _)| text.starts_with(prefix))?;
    let mut depth = 1;
    for (offset, byte) in text[prefix.len()..].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'\n' => return None,
            _ => {}
        }
        if depth == 0 {
            return Some((prefix.len(), *kind, prefix.len() + offset + 1));
        }
    }
    None
}

/// What looks like a reference and is none, in the order of the text: `${files.inputs.x}`. A dot
/// after a plain name is nothing that the shell could read either.
pub(crate) fn slips(text: &str) -> Vec<ReferenceProblem> {
    let mut found = Vec::new();
    let mut scanner = Scanner::default();
    let mut done = 0;
    while let Some(at) = text[done..].find("${") {
        let start = done + at;
        scanner.advance(&text[done..start]);
        if let Some((_, _, length)) = first_reference(&text[start..]) {
            done = start + length;
            continue;
        }
        scanner.advance("${");
        done = start + 2;
        // `\${` is text, and so is `$${`: the number of the process, and braces.
        let before =
            |what: u8| text[..start].bytes().rev().take_while(|byte| *byte == what).count();
        let is_escaped = before(b'\\') % 2 == 1 || before(b'$') % 2 == 1;
        let Some(path) = dotted(&text[done..]) else { continue };
        let right = ["files", "user_data"]
            .into_iter()
            .find(|known| nearest(word_of(path), [*known]).is_some());
        let is_read_by_the_shell = scanner.quotes() != Quotes::Single && !is_escaped;
        if is_read_by_the_shell || right.is_some() {
            found.push(slip(path, right, is_read_by_the_shell));
        }
    }
    found
}

/// `name.name` with whatever follows up to the end of the braces.
fn dotted(text: &str) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = &text[..text.find(|c| !is_name(c))?];
    let after = text[word.len()..].strip_prefix('.')?;
    if !word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        || !after.starts_with(|c| is_name(c) || c == '{')
    {
        return None;
    }
    let end = text.find(|c: char| !is_name(c) && c != '.')?;
    Some(&text[..end])
}

fn word_of(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}

fn slip(path: &str, right: Option<&str>, is_read_by_the_shell: bool) -> ReferenceProblem {
    let written = format!("${{{path}");
    let shown =
        if path.ends_with('.') { format!("{written}...}}") } else { format!("{written}}}") };
    let Some(right) = right else {
        let message = format!("the shell cannot read `{shown}`: a name has no dots");
        let help = "references are `${files.input.NAME}`, `${user_data.input.NAME}` and the same with `output`; \
                    `\\${` keeps the shell from reading it";
        return ReferenceProblem { written, message, help: Some(help.into()), fatal: false };
    };
    let mut parts = path.split('.');
    let first = parts.next().unwrap_or_default();
    let (second, name) = (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>().join("."));
    let role = nearest(second, ["input", "output"]).filter(|_| !name.is_empty());
    let help = match role {
        Some(role) => format!("did you mean `${{{right}.{role}.{name}}}`?"),
        None => format!("write `${{{right}.input.NAME}}` or `${{{right}.output.NAME}}`"),
    };
    let message = format!("`{shown}` is no reference, and no shell can read it");
    // Many words are near to these two; one alone is not enough to refuse a spec.
    let fatal = is_read_by_the_shell && (first == right || role.is_some());
    ReferenceProblem { written, message, help: Some(help), fatal }
}

impl ReferenceProblem {
    fn fatal(written: String, message: String) -> Self {
        Self { written, message, help: None, fatal: true }
    }
}

impl FileReference {
    fn fill(
        &self,
        rows: &[Vec<&Value>],
        catalog: &Catalog,
        out: &mut Filled,
    ) -> Result<(), ReferenceProblem> {
        let mut names: Vec<String> = Vec::with_capacity(1);
        for row in rows {
            let name = self
                .name
                .fill(row)
                .map_err(|message| ReferenceProblem::fatal(self.written.clone(), message))?;
            if rows.len() == 1 || !names.contains(&name) {
                names.push(name);
            }
            if self.name.is_constant() {
                break;
            }
        }
        if self.is_list {
            let is_a_name = |name: &String| catalog.file(&format!("{name}{LIST}")).is_some();
            if !names.iter().any(is_a_name) {
                return self.fill_list(&names, catalog, out);
            }
            names.iter_mut().for_each(|name| name.push_str(LIST));
        }
        for (position, name) in names.iter().enumerate() {
            if position > 0 {
                out.text.push(' ');
            }
            if self.kind.is_file() {
                self.fill_file(name, catalog, out)?;
            } else {
                self.fill_user_data(name, catalog, out)?;
            }
        }
        Ok(())
    }

    /// The runner writes the paths to a file and tells its name in a variable.
    fn fill_list(
        &self,
        names: &[String],
        catalog: &Catalog,
        out: &mut Filled,
    ) -> Result<(), ReferenceProblem> {
        let mut paths = Vec::with_capacity(names.len());
        for name in names {
            let index = catalog
                .file(name)
                .ok_or_else(|| self.unknown("file", name, catalog.nearest_file(name)))?;
            paths.push(catalog.files[index as usize].path.clone());
            out.references.push((self.kind, index));
        }
        out.lists.push(paths);
        let variable = list_variable(out.lists.len());
        match self.quotes {
            Quotes::None => out.text.push_str(&format!("\"${{{variable}}}\"")),
            Quotes::Double => out.text.push_str(&format!("${{{variable}}}")),
            Quotes::Single => {
                out.text.push_str(&format!("${{{variable}}}"));
                out.doubts.push(ReferenceProblem {
                    written: self.written.clone(),
                    message: "between single quotes only a nested shell will see the list".into(),
                    help: Some("use double quotes".into()),
                    fatal: false,
                });
            }
        }
        Ok(())
    }

    fn fill_file(
        &self,
        name: &str,
        catalog: &Catalog,
        out: &mut Filled,
    ) -> Result<(), ReferenceProblem> {
        let index = catalog
            .file(name)
            .ok_or_else(|| self.unknown("file", name, catalog.nearest_file(name)))?;
        let path = &catalog.files[index as usize].path;
        if let Some(c) = special(path, self.quotes) {
            let message = format!(
                "the path `{path}` contains `{}`, which the shell will interpret",
                c.escape_debug()
            );
            let help = match self.quotes {
                Quotes::None => "put the reference in double quotes",
                Quotes::Double => "put the reference in single quotes",
                Quotes::Single => "choose another path",
            };
            out.doubts.push(ReferenceProblem {
                written: self.written.clone(),
                message,
                help: Some(help.into()),
                fatal: false,
            });
        }
        out.text.push_str(path);
        out.references.push((self.kind, index));
        Ok(())
    }

    fn fill_user_data(
        &self,
        name: &str,
        catalog: &Catalog,
        out: &mut Filled,
    ) -> Result<(), ReferenceProblem> {
        let index = catalog
            .user_data(name)
            .ok_or_else(|| self.unknown("user data", name, catalog.nearest_user_data(name)))?;
        out.references.push((self.kind, index));
        let variable = user_data_variable(name);
        let Some(data) = &catalog.user_data[index as usize].data else {
            // Not known yet: the runner exports the value that is current when the job starts.
            match self.quotes {
                Quotes::None => out.text.push_str(&format!("\"${{{variable}}}\"")),
                Quotes::Double => out.text.push_str(&format!("${{{variable}}}")),
                Quotes::Single => {
                    out.text.push_str(&format!("${{{variable}}}"));
                    let message =
                        "the value is not known yet, and between single quotes only a nested shell will see it".into();
                    let help = Some(format!(
                        "use double quotes, or read the environment variable `{variable}`"
                    ));
                    out.doubts.push(ReferenceProblem {
                        written: self.written.clone(),
                        message,
                        help,
                        fatal: false,
                    });
                }
            }
            return Ok(());
        };
        let text = data.to_string();
        if text.len() >= LONGEST_ARGUMENT {
            out.doubts.push(ReferenceProblem {
                written: self.written.clone(),
                message: format!(
                    "the value of `{name}` has {} KiB, and no program takes an argument of {} KiB or more",
                    text.len() >> 10,
                    LONGEST_ARGUMENT >> 10
                ),
                help: Some(format!("the file that `${variable}_FILE` names has the value, too")),
                fatal: false,
            });
        }
        let scalar = matches!(data, Value::String(_))
            && special(&text, Quotes::Single).is_none()
            && !text.contains(['$', '`', '\\']);
        let harmless =
            special(&text, self.quotes).is_none() || (self.quotes == Quotes::None && scalar);
        if !harmless {
            let fatal = self.quotes == Quotes::Single;
            let message = if fatal {
                format!(
                    "the value of `{name}` contains a single quote, which would end the quotes around it"
                )
            } else {
                format!("the shell will interpret parts of the value of `{name}`")
            };
            let single = if fatal { "" } else { "put the reference in single quotes, or " };
            let help = Some(format!("{single}read the environment variable `{variable}`"));
            let doubt = ReferenceProblem { written: self.written.clone(), message, help, fatal };
            if fatal {
                return Err(doubt);
            }
            out.doubts.push(doubt);
        }
        out.text.push_str(&text);
        Ok(())
    }

    fn unknown(&self, what: &str, name: &str, help: Option<String>) -> ReferenceProblem {
        ReferenceProblem {
            written: self.written.clone(),
            message: format!("there is no {what} called `{name}`"),
            help,
            fatal: true,
        }
    }
}
