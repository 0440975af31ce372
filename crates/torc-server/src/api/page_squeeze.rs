//! A script as it is sent: without the blanks and signs that nothing needs, and with short local
//! names. The page comes through slow tunnels, and its code is written for people.
//!
//! All modules share one scope. What a module exports has one short name in all of them, so that the
//! same calls are the same bytes, which pack well; its other names are its own. Every name that is
//! declared somewhere in a module becomes a short one everywhere in it; properties keep theirs
//! (`{ job }` becomes `{ job:a }`). Two names of a module get the same short one if no block or
//! function holds uses of both and not both stand in the shared scope. That is sound as long as no
//! local name of a module is also a global that it uses: those in [`GLOBALS`] are left alone, and
//! `page_files` tests that the modules use no other ones.

use std::collections::{HashMap, HashSet};

/// Globals of browsers that the page uses, or whose names are likely names of variables.
const GLOBALS: &[&str] = &[
    "Array",
    "Blob",
    "Boolean",
    "BroadcastChannel",
    "CSS",
    "DataView",
    "Date",
    "DecompressionStream",
    "Error",
    "Float64Array",
    "Infinity",
    "Int16Array",
    "JSON",
    "Map",
    "Math",
    "Node",
    "Number",
    "Object",
    "Promise",
    "RegExp",
    "ResizeObserver",
    "Response",
    "Set",
    "String",
    "TextDecoder",
    "TextDecoderStream",
    "TextEncoder",
    "URL",
    "URLSearchParams",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "XMLSerializer",
    "AbortController",
    "addEventListener",
    "atob",
    "clearTimeout",
    "close",
    "confirm",
    "devicePixelRatio",
    "document",
    "encodeURIComponent",
    "event",
    "fetch",
    "find",
    "focus",
    "frames",
    "getComputedStyle",
    "globalThis",
    "history",
    "innerHeight",
    "innerWidth",
    "isFinite",
    "isNaN",
    "length",
    "localStorage",
    "location",
    "name",
    "navigator",
    "origin",
    "parent",
    "performance",
    "print",
    "removeEventListener",
    "requestAnimationFrame",
    "screen",
    "scroll",
    "self",
    "sessionStorage",
    "setTimeout",
    "status",
    "stop",
    "top",
    "undefined",
    "window",
];
const WORDS: &[&str] = &[
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "constructor",
    "continue",
    "default",
    "delete",
    "do",
    "else",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "get",
    "if",
    "in",
    "instanceof",
    "let",
    "new",
    "null",
    "of",
    "return",
    "set",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "yield",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Blank,
    /// An identifier or a word of the language.
    Word,
    /// A text, a regular expression, a number, or a part of a template.
    Text,
    /// A part of a template behind which a value begins.
    Open,
    /// A part of a template behind a value, and more values follow.
    Middle,
    /// The last part of a template with values.
    Close,
    Sign,
}

type ScriptToken<'a> = (Kind, &'a str);

/// What an opened bracket holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Block,
    /// An object or a pattern.
    Object,
    Other,
}

/// A module without its `import` lines and the words `export`.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// What it does.
    pub body: String,
    /// Names that it imports or exports: they mean the same in all modules.
    pub shared: Vec<String>,
}

/// A module in pieces.
struct ParsedModule<'a> {
    tokens: Vec<ScriptToken<'a>>,
    /// Without blanks.
    full: Vec<ScriptToken<'a>>,
    roles: Vec<WordRole>,
    /// How often each name of a variable stands in it.
    uses: HashMap<&'a str, usize>,
    shared: &'a [String],
}

impl<'a> ParsedModule<'a> {
    fn new(module: &'a Module) -> Self {
        let tokens = tokens(&module.body);
        let full: Vec<ScriptToken> =
            tokens.iter().copied().filter(|(kind, _)| *kind != Kind::Blank).collect();
        let roles = roles(&full);
        let mut uses: HashMap<&str, usize> = HashMap::new();
        for ((_, word), role) in full.iter().zip(&roles) {
            if *role != WordRole::Other {
                *uses.entry(word).or_default() += 1;
            }
        }
        Self { tokens, full, roles, uses, shared: &module.shared }
    }

    fn is_shared(&self, name: &str) -> bool {
        self.shared.iter().any(|shared| shared == name)
    }

    fn written(&self, short: &HashMap<&str, String>) -> String {
        let mut out = String::new();
        let (mut at, mut blank) = (0, "");
        for (kind, text) in &self.tokens {
            if *kind == Kind::Blank {
                blank = text;
                continue;
            }
            at += 1;
            if self.is_needless(at - 1) {
                blank = if blank.is_empty() { " " } else { blank };
                continue;
            }
            // A variable that is never set again may be declared like the others, which packs better.
            let is_property = at > 1 && self.full[at - 2].1 == ".";
            let text = match *text {
                "const" => "let",
                "true" if !is_property => "!0",
                "false" if !is_property => "!1",
                other => other,
            };
            join(&mut out, blank, text);
            blank = "";
            match (self.roles[at - 1], short.get(text)) {
                (WordRole::Name, Some(name)) => out += name,
                (WordRole::Both, Some(name)) => {
                    out += text;
                    out.push(':');
                    out += name;
                }
                _ => out += text,
            }
        }
        join(&mut out, blank, "\n");
        out
    }

    /// A sign without which the script means the same: the last semicolon of a block, and parentheses around
    /// the only parameter of an arrow or around a name, where a comment said its type.
    fn is_needless(&self, at: usize) -> bool {
        let text = |at: usize| self.full.get(at).map_or("", |(_, text)| *text);
        let is_name = |at: usize| matches!(self.full.get(at), Some((Kind::Word, _)));
        match self.full[at] {
            (Kind::Sign, ";") => {
                self.full.get(at + 1) == Some(&(Kind::Sign, "}")) && !self.ends_header(at)
            }
            (Kind::Sign, "(") => {
                let is_one = is_name(at + 1) && text(at + 2) == ")";
                is_one && (text(at + 3) == "=>" || self.is_around_name(at))
            }
            (Kind::Sign, ")") => {
                let is_one = at >= 2 && is_name(at - 1) && text(at - 2) == "(";
                is_one && (text(at + 1) == "=>" || self.is_around_name(at - 2))
            }
            _ => false,
        }
    }

    /// The parenthesis at this place begins no call and belongs to no word such as `if`.
    fn is_around_name(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| self.full[before]);
        let is_value = matches!(before, Some((Kind::Sign, ")" | "]" | "}" | "?.")));
        let is_sign = matches!(before, Some((Kind::Sign | Kind::Open | Kind::Middle, _)));
        is_sign && !is_value && self.roles.get(at + 1) == Some(&WordRole::Name)
    }

    /// What stands before this place is `for (…)`, `if (…)` or `while (…)`: the semicolon is its body.
    fn ends_header(&self, at: usize) -> bool {
        let mut depth = 0;
        for place in (0..at).rev() {
            match self.full[place] {
                (Kind::Sign, ")" | "]" | "}") | (Kind::Close, _) => depth += 1,
                (Kind::Sign, "(" | "[" | "{") | (Kind::Open, _) => depth -= 1,
                _ => {}
            }
            if depth <= 0 {
                let before = place.checked_sub(1).map_or("", |before| self.full[before].1);
                return self.full[place].1 == "(" && matches!(before, "for" | "if" | "while");
            }
        }
        false
    }
}

/// The modules in one scope, smaller.
pub fn squeezed(modules: &[Module]) -> String {
    let parsed: Vec<ParsedModule> = modules.iter().map(ParsedModule::new).collect();
    let shared = shared_names(&parsed);
    // Names that stand in the scope of all modules.
    let mut top: HashSet<String> = shared.values().cloned().collect();
    parsed.iter().map(|module| module.written(&short_names(module, &shared, &mut top))).collect()
}

/// A short name for each that modules give each other, the shortest for those that are used most.
fn shared_names<'a>(parsed: &[ParsedModule<'a>]) -> HashMap<&'a str, String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for module in parsed {
        for name in module.shared {
            *uses.entry(name).or_default() += module.uses.get(name.as_str()).unwrap_or(&0);
        }
    }
    let mut wanted: Vec<(&str, usize)> = uses.into_iter().collect();
    wanted.sort_by_key(|(name, uses)| (usize::MAX - uses * (name.len() - 1), *name));
    let (fixed, wanted): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(name, _)| is_fixed(name));
    let mut short: HashMap<&str, String> = HashMap::new();
    let mut given: HashSet<String> = HashSet::new();
    for (name, _) in fixed {
        given.insert(name.to_owned());
        short.insert(name, name.to_owned());
    }
    for (name, _) in wanted {
        let users: Vec<&ParsedModule> =
            parsed.iter().filter(|module| module.is_shared(name)).collect();
        let is_free = |next: &String| {
            is_name(next)
                && !given.contains(next)
                && users.iter().all(|module| !module.uses.contains_key(next.as_str()))
        };
        let next = (0..).map(|n| nth_name(n, SHARED_LETTERS)).find(is_free);
        let next = next.unwrap_or_else(|| name.to_owned());
        given.insert(next.clone());
        short.insert(name, next);
    }
    short
}

/// It keeps its name.
fn is_fixed(name: &str) -> bool {
    name.len() == 1 || GLOBALS.contains(&name)
}

fn is_name(name: &str) -> bool {
    !WORDS.contains(&name) && !GLOBALS.contains(&name)
}

/// Puts what is needed of a blank before the next token.
fn join(out: &mut String, blank: &str, next: &str) {
    let (last, next) = (out.chars().next_back(), next.chars().next());
    let (Some(last), Some(next)) = (last, next) else { return };
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let would_join = (is_word(last) && is_word(next))
        || (last == next && (last == '+' || last == '-' || last == '/'));
    // A statement may end with its line.
    let ends = blank.contains('\n') && !";{,([=&|?:>".contains(last) && !"})],.?:&|".contains(next);
    if ends {
        out.push('\n');
    } else if would_join && !blank.is_empty() {
        out.push(' ');
    }
}

fn tokens(script: &str) -> Vec<ScriptToken<'_>> {
    let mut found: Vec<ScriptToken> = Vec::new();
    // Open braces; true: what it closes is a value of a template.
    let mut braces = Vec::new();
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let before = found.iter().rev().find(|(kind, _)| *kind != Kind::Blank).copied();
        let (kind, length) = match first {
            ' ' | '\n' => {
                let end = rest.find(|c: char| c != ' ' && c != '\n');
                (Kind::Blank, end.unwrap_or(rest.len()))
            }
            '"' | '\'' => (Kind::Text, quoted(rest, first)),
            '`' => template(rest, false, &mut braces),
            '}' if braces.pop() == Some(true) => template(rest, true, &mut braces),
            '/' if expects_value(before) => (Kind::Text, regex(rest)),
            '{' => {
                braces.push(false);
                (Kind::Sign, 1)
            }
            c if c.is_ascii_alphabetic() || c == '_' || c == '$' => {
                let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$');
                (Kind::Word, rest.find(is_end).unwrap_or(rest.len()))
            }
            c if c.is_ascii_digit() => {
                let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '.');
                (Kind::Text, rest.find(is_end).unwrap_or(rest.len()))
            }
            c => {
                let long = ["...", "?.", "=>"].into_iter().find(|sign| rest.starts_with(sign));
                (Kind::Sign, long.map_or(c.len_utf8(), str::len))
            }
        };
        let (token, behind) = rest.split_at(length);
        found.push((kind, token));
        rest = behind;
    }
    found
}

/// A slash begins a regular expression here, and is no division.
fn expects_value(before: Option<ScriptToken<'_>>) -> bool {
    match before {
        Some((Kind::Sign, sign)) => !matches!(sign, ")" | "]" | "}"),
        Some((Kind::Open | Kind::Middle, _)) | None => true,
        Some((Kind::Word, word)) => word == "return",
        Some(_) => false,
    }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

/// A part of a template: up to its end or to the next value in it.
fn template(rest: &str, is_behind_value: bool, braces: &mut Vec<bool>) -> (Kind, usize) {
    let (mut is_escaped, mut before) = (false, ' ');
    for (at, c) in rest.char_indices().skip(1) {
        if c == '`' && !is_escaped {
            return (if is_behind_value { Kind::Close } else { Kind::Text }, at + 1);
        }
        if before == '$' && c == '{' {
            braces.push(true);
            return (if is_behind_value { Kind::Middle } else { Kind::Open }, at + 1);
        }
        before = if is_escaped { ' ' } else { c };
        is_escaped = c == '\\' && !is_escaped;
    }
    (Kind::Text, rest.len())
}

fn regex(rest: &str) -> usize {
    let (mut is_escaped, mut in_class) = (false, false);
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => {
                let flags = rest[at + 1..].find(|c: char| !c.is_ascii_lowercase());
                return at + 1 + flags.unwrap_or(0);
            }
            _ => {}
        }
    }
    rest.len()
}

/// What a word is at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WordRole {
    /// No name of a variable: a property, a word of the language, or no word at all.
    Other,
    /// The name of a variable.
    Name,
    /// A property and a variable of the same name: `{ job }`.
    Both,
}

fn roles(tokens: &[ScriptToken<'_>]) -> Vec<WordRole> {
    let text = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map_or("", |token| token.1);
    let mut open: Vec<Holds> = Vec::new();
    let mut roles = Vec::with_capacity(tokens.len());
    for (at, (kind, word)) in tokens.iter().enumerate() {
        let (before, next) = (text(at.checked_sub(1)), text(Some(at + 1)));
        match (kind, *word) {
            (Kind::Sign, "{") => open.push(brace(before, text(at.checked_sub(2)))),
            (Kind::Sign, "(" | "[") | (Kind::Open, _) => open.push(Holds::Other),
            (Kind::Sign, ")" | "]" | "}") | (Kind::Close, _) => drop(open.pop()),
            _ => {}
        }
        let in_object = open.last() == Some(&Holds::Object);
        let is_first = matches!(before, "{" | ",");
        roles.push(match kind {
            _ if *kind != Kind::Word || WORDS.contains(word) => WordRole::Other,
            _ if matches!(before, "." | "?.") => WordRole::Other,
            _ if in_object && is_first && matches!(next, ":" | "(") => WordRole::Other,
            _ if in_object && is_first && matches!(next, "," | "}" | "=") => WordRole::Both,
            // Methods and fields of objects and classes.
            _ if matches!(before, "get" | "set" | "async" | "}" | ";")
                && next == "("
                && is_method(tokens, at) =>
            {
                WordRole::Other
            }
            _ => WordRole::Name,
        });
    }
    roles
}

/// Whether the parentheses behind this word are followed by a body: `draw() {`.
fn is_method(tokens: &[ScriptToken<'_>], at: usize) -> bool {
    closing(tokens, at + 1)
        .is_some_and(|end| tokens.get(end + 1).is_some_and(|token| token.1 == "{"))
}

/// The bracket that closes the one at this place.
fn closing(tokens: &[ScriptToken<'_>], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (place, (kind, text)) in tokens.iter().enumerate().skip(at) {
        match (kind, *text) {
            (Kind::Sign, "(" | "[" | "{") | (Kind::Open, _) => depth += 1,
            (Kind::Sign, ")" | "]" | "}") | (Kind::Close, _) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

fn brace(before: &str, before_that: &str) -> Holds {
    match before {
        // Behind a label or a class there would be a block; the modules have no labels.
        "(" | "," | "=" | ":" | "[" | "?" | "&" | "|" | "..." | "return" | "const" | "let" => {
            Holds::Object
        }
        "of" | "in" if before_that != "." => Holds::Object,
        _ => Holds::Block,
    }
}

/// A short name for each name of a module.
fn short_names<'a>(
    module: &ParsedModule<'a>,
    shared: &HashMap<&'a str, String>,
    top: &mut HashSet<String>,
) -> HashMap<&'a str, String> {
    let all = declared(&module.full, &module.roles, false);
    let at_top = declared(&module.full, &module.roles, true);
    let regions = regions(&module.full, &module.roles);
    let mut short: HashMap<&str, String> = HashMap::new();
    let mut given: Vec<(TokenRange, String)> = Vec::new();
    let used_here = module.shared.iter().filter_map(|name| shared.get_key_value(name.as_str()));
    for (name, next) in used_here {
        short.insert(name, next.clone());
        given.extend(regions.get(name).map(|region| (*region, next.clone())));
    }
    let mut wanted: Vec<(&str, usize)> = module
        .uses
        .iter()
        .filter(|(name, _)| all.contains(**name) && !module.is_shared(name))
        .map(|(name, uses)| (*name, *uses))
        .collect();
    top.extend(at_top.iter().filter(|name| is_fixed(name)).map(|name| (*name).to_owned()));
    wanted.retain(|(name, _)| !is_fixed(name));
    // Those that are used most get the shortest; the order is the same every time.
    wanted.sort_by_key(|(name, uses)| (usize::MAX - uses * (name.len() - 1), *name));
    for (name, _) in wanted {
        let region = regions[name];
        let is_top = at_top.contains(name);
        let is_free = |next: &String| {
            let overlaps = |span: &TokenRange| span.0 <= region.1 && region.0 <= span.1;
            let is_used = module.uses.contains_key(next.as_str());
            let is_taken = (is_top && top.contains(next))
                || given.iter().any(|(span, other)| other == next && overlaps(span));
            is_name(next) && !is_used && !is_taken
        };
        let letters = if is_top { SHARED_LETTERS } else { OWN_LETTERS };
        let Some(next) = (0..).map(|n| nth_name(n, letters)).find(is_free) else { continue };
        // A name of the shared scope changes even if it stays as long: two modules may have it.
        if is_top || next.len() < name.len() {
            given.push((region, next.clone()));
            if is_top {
                top.insert(next.clone());
            }
            short.insert(name, next);
        }
    }
    short
}

/// From the first token to the last.
type TokenRange = (usize, usize);

/// For each name the smallest block or function that holds all its uses.
fn regions<'a>(tokens: &[ScriptToken<'a>], roles: &[WordRole]) -> HashMap<&'a str, TokenRange> {
    let mut uses: HashMap<&str, TokenRange> = HashMap::new();
    for (at, (_, word)) in tokens.iter().enumerate().filter(|(at, _)| roles[*at] != WordRole::Other)
    {
        let span = uses.entry(word).or_insert((at, at));
        span.1 = at;
    }
    let mut scopes: Vec<TokenRange> =
        (0..tokens.len()).filter_map(|at| Some((at, scope(tokens, at)?))).collect();
    scopes.push((0, tokens.len()));
    // The smallest first.
    scopes.sort_by_key(|(from, until)| until - from);
    let holds = |span: TokenRange| {
        let found = scopes.iter().find(|scope| scope.0 <= span.0 && span.1 <= scope.1);
        found.copied().unwrap_or((0, tokens.len()))
    };
    uses.into_iter().map(|(name, span)| (name, holds(span))).collect()
}

/// The end of the scope that begins at this token: of a block, or of a function, a loop or a `catch`
/// with what stands in its parentheses.
fn scope(tokens: &[ScriptToken<'_>], at: usize) -> Option<usize> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.1);
    let before = at.checked_sub(1).map_or("", text);
    match text(at) {
        // The names of a pattern live where it stands.
        "{" if !matches!(before, "const" | "let") => closing(tokens, at),
        "(" => {
            let end = closing(tokens, at)?;
            let body = match (text(end + 1), before) {
                ("=>", _) => end + 2,
                ("{", _) | (_, "for") => end + 1,
                _ => return None,
            };
            if text(body) == "{" {
                closing(tokens, body)
            } else {
                Some(end_of_expression(tokens, body))
            }
        }
        _ if text(at + 1) == "=>" => match text(at + 2) {
            "{" => closing(tokens, at + 2),
            _ => Some(end_of_expression(tokens, at + 2)),
        },
        _ => None,
    }
}

/// The last token of the expression that begins here.
fn end_of_expression(tokens: &[ScriptToken<'_>], at: usize) -> usize {
    let mut place = at;
    while let Some((kind, text)) = tokens.get(place) {
        match (kind, *text) {
            (Kind::Sign, "(" | "[" | "{") | (Kind::Open, _) => match closing(tokens, place) {
                Some(end) => place = end,
                None => break,
            },
            (Kind::Sign, ")" | "]" | "}" | "," | ";") | (Kind::Close | Kind::Middle, _) => break,
            _ => {}
        }
        place += 1;
    }
    place
}

/// Names of the shared scope and names inside of functions begin at different ends, so that both stay
/// the same from module to module.
const SHARED_LETTERS: &[u8] = b"$_ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba";
const OWN_LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$";

fn nth_name(n: usize, letters: &[u8]) -> String {
    let (rest, last) = (n / letters.len(), char::from(letters[n % letters.len()]));
    if rest == 0 { last.to_string() } else { nth_name(rest - 1, letters) + &last.to_string() }
}

/// Names that are declared somewhere: constants, variables, functions, classes and parameters; or
/// only those that stand in no block or function.
fn declared<'a>(
    tokens: &[ScriptToken<'a>],
    roles: &[WordRole],
    is_top_only: bool,
) -> HashSet<&'a str> {
    let text = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map_or("", |token| token.1);
    let mut found = HashSet::new();
    let mut depth = 0;
    for (at, (kind, word)) in tokens.iter().enumerate() {
        let (before, next) = (text(at.checked_sub(1)), text(Some(at + 1)));
        let is_inside = depth > 0;
        match (kind, *word) {
            (Kind::Sign, "(" | "[" | "{") | (Kind::Open, _) => depth += 1,
            (Kind::Sign, ")" | "]" | "}") | (Kind::Close, _) => depth -= 1,
            _ => {}
        }
        if is_inside && is_top_only {
            continue;
        }
        let is_name = roles[at] != WordRole::Other;
        if is_name && (matches!(before, "const" | "let" | "function" | "class") || next == "=>") {
            found.insert(*word);
        }
        // `let a = 0, b = 1`, between statements.
        if is_name && before == "," && next == "=" {
            found.insert(*word);
        }
        let is_list = !is_top_only && *kind == Kind::Sign && *word == "(" && {
            let end = closing(tokens, at);
            let behind = text(end.map(|end| end + 1));
            let is_control = matches!(before, "if" | "for" | "while" | "switch");
            behind == "=>" || before == "catch" || (behind == "{" && !is_control)
        };
        let is_pattern = matches!(before, "const" | "let") && matches!(*word, "{" | "[");
        if (is_list || is_pattern)
            && let Some(end) = closing(tokens, at)
        {
            let inside = (at + 1..end).filter(|place| roles[*place] != WordRole::Other);
            let binds = |place: &usize| {
                matches!(tokens[place - 1].1, "(" | "," | "[" | "{" | "..." | ":")
                    && matches!(tokens[place + 1].1, "," | ")" | "]" | "}" | "=")
            };
            found.extend(inside.filter(binds).map(|place| tokens[place].1));
        }
    }
    found
}

/// Names that a module uses and neither declares nor imports: they are globals, or mistakes.
#[cfg(test)]
pub fn undeclared(module: &Module) -> Vec<String> {
    let parsed = ParsedModule::new(module);
    let declared = declared(&parsed.full, &parsed.roles, false);
    let is_known =
        |name: &str| declared.contains(name) || parsed.is_shared(name) || GLOBALS.contains(&name);
    let mut free: Vec<String> =
        parsed.uses.keys().filter(|name| !is_known(name)).map(|name| (*name).to_owned()).collect();
    free.sort();
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(body: &str) -> String {
        squeezed(&[Module { body: body.to_owned(), shared: Vec::new() }])
    }

    #[test]
    fn only_blanks_go_that_nothing_needs() {
        for (before, after) in [
            ("go = { b: 1, c };\n", "go={b:1,c};"),
            ("return x\n}\n", "return x}"),
            ("a\nb\n", "a\nb"),
            ("if (a) b ();\nelse c();\n", "if(a)b();else c();"),
            ("x + +y - -z", "x+ +y- -z"),
            ("f(\"a  b\", 'c  \\' d', `e  f`)", "f(\"a  b\",'c  \\' d',`e  f`)"),
            ("`a  ${ b  ? `c  ${ d }` : { e } }  f`", "`a  ${b?`c  ${d}`:{e}}  f`"),
            ("x.replace(/[ /]  +/g, \"\") / 2", "x.replace(/[ /]  +/g,\"\")/2"),
            ("a in b\nasync () => c", "a in b\nasync()=>c"),
            ("`\\`  ` + b", "`\\`  `+b"),
            ("`$\\{  }` + b", "`$\\{  }`+b"),
        ] {
            assert_eq!(alone(before).trim_end(), after, "{before:?}");
        }
    }

    #[test]
    fn signs_go_without_which_a_script_means_the_same() {
        for (before, after) in [
            ("{ go (); stop(); }", "{go();stop()}"),
            ("if (a) { for (;;); }", "if(a){for(;;);}"),
            ("{ while (next (a, [b])); }", "{while(next(a,[b]));}"),
            ("{ do { a(); } while (b()); }", "{do{a()}while(b());}"),
            ("`${ { a: 1 }.a };}`", "`${{a:1}.a};}`"),
            ("x.map((a) => a, async (b) => c, (d, e) => f)", "x.map(a=>a,async b=>c,(d,e)=>f)"),
            ("(a).b; (a)(b); f(a);", "(a).b;a(b);f(a);"),
            ("x = (a).b; f((a), `${(b)}`);", "x=a.b;f(a,`${b}`);"),
            ("x?.(a); f()(a); x[0](a); if (a) b();", "x?.(a);f()(a);x[0](a);if(a)b();"),
            ("f(true, !false, x.true)", "f(!0,!!1,x.true)"),
        ] {
            assert_eq!(alone(before).trim_end(), after, "{before:?}");
        }
    }

    #[test]
    fn declared_names_become_short_and_properties_and_globals_stay() {
        for (before, after) in [
            ("const first = 1; other(first.first, first);", "let $=1;other($.first,$);"),
            (
                "const { job, state: now } = view; call({ job, now: 2, last });",
                "let{job:$,state:_}=view;call({job:$,now:2,last});",
            ),
            ("let one = 0, two = one;", "let $=0,_=$;"),
            (
                "function draw(value, [x1, x2] = []) { return `${value} of ${x1}`; }",
                "function $(a,[b,c]=[]){return`${a} of ${b}`}",
            ),
            (
                "list.map((item, at) => item + at + location.name)",
                "list.map((a,b)=>a+b+location.name)",
            ),
            ("try { go(); } catch (error) { tell(error); }", "try{go()}catch(a){tell(a)}"),
            (
                "const kept = { get size() { return kept; }, draw() { }, kept };",
                "let $={get size(){return $},draw(){},kept:$};",
            ),
            (
                "const name = 1; const text = { text }; f(text ? text : name);",
                "let name=1;let $={text:$};f($?$:name);",
            ),
        ] {
            assert_eq!(alone(before).trim_end(), after, "{before:?}");
        }
    }

    #[test]
    fn what_modules_share_has_one_name_and_what_they_keep_is_their_own() {
        let module = |body: &str| Module { body: body.to_owned(), shared: vec!["put".into()] };
        let one = module("function put(text) { return text; }\nconst kept = put(1);\n");
        let two = module("const kept = put(2); function draw(put2) { return put(put2 + kept); }\n");
        let made = squeezed(&[one, two]);
        let expected =
            "function $(a){return a}\nlet _=$(1);let Z=$(2);function Y(a){return $(a+Z)}";
        assert_eq!(made.trim_end(), expected);
        // A name of a module may be that of another one's export.
        let other = Module { body: "const put = 3; f(put);\n".into(), shared: Vec::new() };
        let made = squeezed(&[module("const put = 1;\n"), other]);
        assert_eq!(made.trim_end(), "let $=1;let _=3;f(_);");
    }
}
