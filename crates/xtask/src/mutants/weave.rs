//! One text that holds a file and all of its changes, each behind a switch.

use super::sites::{Form, MutationSite};
use std::collections::HashSet;
use std::ops::Range;

/// A file with its changes woven in.
pub struct Woven {
    /// The text.
    pub text: String,
    /// Where the text of each change is, by its number.
    changes: Vec<(Range<usize>, u32)>,
    /// Where each site is, with the numbers of its changes.
    sites: Vec<(Range<usize>, Vec<u32>)>,
}

impl Woven {
    /// The changes that a complaint of the compiler about this place is about: the innermost one whose
    /// own text it is, or all of the innermost site.
    pub fn blamed(&self, at: Range<usize>) -> Vec<u32> {
        let holds = |range: &Range<usize>| range.start <= at.start && at.end <= range.end;
        let own = self.changes.iter().filter(|(range, _)| holds(range));
        if let Some((_, id)) = own.min_by_key(|(range, _)| range.len()) {
            return vec![*id];
        }
        let around = self.sites.iter().filter(|(range, _)| holds(range));
        around.min_by_key(|(range, _)| range.len()).map_or_else(Vec::new, |(_, ids)| ids.clone())
    }
}

/// Weaves the changes of a file in. They are numbered from `first` on, in the order of the sites; the
/// numbers of those in `without` stay unused.
pub fn weave(source: &str, sites: &[MutationSite], first: u32, without: &HashSet<u32>) -> Woven {
    let mut next = first;
    let numbered: Vec<(&MutationSite, Vec<(u32, &str)>)> = sites
        .iter()
        .map(|site| {
            let own = site.alternatives.iter().map(|alternative| {
                next += 1;
                (next - 1, alternative.text.as_str())
            });
            (site, own.filter(|(id, _)| !without.contains(id)).collect::<Vec<_>>())
        })
        .filter(|(_, alternatives)| !alternatives.is_empty())
        .collect();
    let mut weaver = Weaver {
        source,
        sites: &numbered,
        woven: Woven { text: String::new(), changes: Vec::new(), sites: Vec::new() },
    };
    weaver.emit(0..source.len());
    weaver.woven
}

struct Weaver<'a> {
    source: &'a str,
    /// What is left to be woven, outer sites before inner ones.
    sites: &'a [(&'a MutationSite, Vec<(u32, &'a str)>)],
    woven: Woven,
}

impl Weaver<'_> {
    /// Writes a part of the source with the sites in it.
    fn emit(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some(((site, alternatives), rest)) = self.sites.split_first()
            && site.range.start < range.end
        {
            self.sites = rest;
            self.woven.text.push_str(&self.source[at..site.range.start]);
            let begin = self.woven.text.len();
            self.site(site, alternatives);
            let ids = alternatives.iter().map(|(id, _)| *id).collect();
            self.woven.sites.push((begin..self.woven.text.len(), ids));
            at = site.range.end;
        }
        self.woven.text.push_str(&self.source[at..range.end]);
    }

    fn site(&mut self, site: &MutationSite, alternatives: &[(u32, &str)]) {
        match site.form {
            Form::Entry => {
                for (id, value) in alternatives {
                    self.change(*id, &format!(" if {} {{ return {value}; }}", switch(*id)));
                }
            }
            Form::Arm => {
                for (id, _) in alternatives {
                    self.change(*id, &format!(" if !{}", switch(*id)));
                }
            }
            Form::Statement => {
                for (id, _) in alternatives {
                    self.woven.text.push_str(&format!("if !{} {{ ", switch(*id)));
                }
                self.emit(site.range.clone());
                alternatives.iter().for_each(|_| self.woven.text.push_str(" }"));
            }
            Form::Expression => {
                self.woven.text.push('(');
                for (id, text) in alternatives {
                    self.woven.text.push_str(&format!("if {} {{ ", switch(*id)));
                    self.change(*id, &format!("({text})"));
                    self.woven.text.push_str(" } else ");
                }
                self.woven.text.push_str("{ (");
                self.emit(site.range.clone());
                self.woven.text.push_str(") })");
            }
        }
    }

    fn change(&mut self, id: u32, text: &str) {
        let begin = self.woven.text.len();
        self.woven.text.push_str(text);
        self.woven.changes.push((begin..self.woven.text.len(), id));
    }
}

fn switch(id: u32) -> String {
    format!("crate::mutant::on({id})")
}

#[cfg(test)]
mod tests {
    use super::super::sites::find;
    use super::*;

    #[test]
    fn every_change_is_behind_its_switch_and_the_rest_is_what_it_was() {
        let source = "fn f(a: u8) -> bool {\n    g();\n    a < 1\n}\n";
        let sites = find(source).expect("it parses").sites;
        let without = HashSet::from([11]);
        let woven = weave(source, &sites, 10, &without);
        let expected = "fn f(a: u8) -> bool { if crate::mutant::on(10) { return true; }\n    \
            if !crate::mutant::on(12) { g(); }\n    \
            (if crate::mutant::on(13) { ((a) <= (1)) } else if crate::mutant::on(14) { ((a) > (1)) } \
            else if crate::mutant::on(15) { ((a) == (1)) } else { (a < \
            (if crate::mutant::on(16) { (2) } else { (1) })) })\n}\n";
        assert_eq!(woven.text, expected);
        // A complaint about a change blames that one, one about the rest of a site the whole of it.
        let at =
            |text: &str| woven.text.find(text).map(|at| at..at + text.len()).expect("it is there");
        assert_eq!(woven.blamed(at("(a) > (1)")), [14]);
        assert_eq!(woven.blamed(at("(a < ")), [13, 14, 15]);
        assert_eq!(woven.blamed(at("g();")), [12]);
        assert_eq!(woven.blamed(0..2), [0; 0]);
        syn::parse_file(&woven.text).expect("it parses");
    }

    #[test]
    fn arms_with_and_without_a_condition_can_be_switched_off() {
        let source = "fn f(a: u8) { let _ = match a { 1 => g, n if n.h() => i, _ => j }; }";
        let sites = find(source).expect("it parses").sites;
        let woven = weave(source, &sites, 1, &HashSet::from([1]));
        let expected = "fn f(a: u8) { let _ = match a { 1 if !crate::mutant::on(2) => g, \
            n if (if crate::mutant::on(3) { (true) } else if crate::mutant::on(4) { (false) } else { (n.h()) }) => i, \
            _ => j }; }";
        assert_eq!(woven.text, expected);
    }
}
