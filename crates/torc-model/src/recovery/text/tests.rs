//! What is found in what programs wrote.

use super::*;

fn kind(text: &str) -> Option<Kind> {
    terminal_error_of(text).map(|f| f.kind)
}

#[test]
fn the_last_exception_decides_not_an_earlier_message() {
    let text = "urllib3: connection refused\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    \
                x['k']\nKeyError: 'k'\n";
    let found = terminal_error_of(text).expect("an error");
    assert_eq!((found.kind, found.line.as_str()), (Kind::ProgramError, "KeyError: 'k'"));
    assert_eq!(&text[found.range], "KeyError: 'k'");
}

#[test]
fn the_root_of_a_chain_decides() {
    let chain = "Traceback (most recent call last):\n  File \"a\", line 1, in f\nConnectionRefusedError: [Errno 111] \
                 Connection refused\n\nThe above exception was the direct cause of the following exception:\n\n\
                 Traceback (most recent call last):\n  File \"a\", line 2, in g\nRuntimeError: no data\n";
    assert_eq!(kind(chain), Some(Kind::Network));
    let handling = chain.replace(
        "The above exception was the direct cause of the following",
        "During handling of the above exception, another",
    );
    assert_eq!(kind(&handling), Some(Kind::ProgramError));
    let java = "Exception in thread \"main\" java.lang.RuntimeException: load\n\tat A.main(A.java:3)\nCaused by: java.io.IOException: No space left on device\n\tat B.write(B.java:1)\n";
    assert_eq!(kind(java), Some(Kind::DiskFull));
}

#[test]
fn warnings_and_trailers_are_no_errors() {
    assert_eq!(
        kind("WARNING: connection refused, retrying in 5 s\ndone\n"),
        Some(Kind::ProgramError)
    );
    assert_eq!(kind("Killed\n").map(|k| k == Kind::Oom), None);
    assert_eq!(
        kind("cp: write error: No space left on device\nmake: *** [all] Error 1\n"),
        Some(Kind::DiskFull)
    );
    assert_eq!(kind(""), None);
}

#[test]
fn lines_of_torc_itself_are_passed_over() {
    let own = "[torc] step `get` failed: connection refused; try 1 of 3\n";
    assert_eq!(kind(own), None);
    let bug = format!("{own}KeyError: 'x'\n{own}");
    let found = terminal_error_of(&bug).expect("an error");
    assert_eq!((found.kind, found.line.as_str()), (Kind::ProgramError, "KeyError: 'x'"));
}

#[test]
fn causes_below_and_beside_an_error_decide_where_it_does_not() {
    for (text, kind) in [
        (
            "TypeError: fetch failed\n    at a (b.js:1:2) {\n  [cause]: ConnectTimeoutError: slow\n",
            Kind::Network,
        ),
        ("error: RPC failed; HTTP 502\nfatal: error reading section header\n", Kind::Network),
        (" ERROR: x.nc: No such file or directory\n stopping ...\n", Kind::MissingFile),
        ("sync: could not lock the store\nremove the lock by hand\n", Kind::FileSystem),
    ] {
        assert_eq!(terminal_error_of(text).map(|f| f.kind), Some(kind), "{text}");
    }
    let left = terminal_error_of("ERROR: failed to lock directory 'x'\nTry removing 'x/00LOCK'\n");
    assert_eq!(left.map(|f| f.nature), Some(Nature::Permanent));
}

#[test]
fn an_error_that_was_survived_is_less_sure() {
    let last = terminal_error_of("cat: x: No space left on device\n").expect("found").confidence;
    let survived =
        terminal_error_of("cat: x: No space left on device\nwriting elsewhere\nstep 4\n")
            .expect("found");
    assert!(survived.confidence < last, "{survived:?}");
}

#[test]
fn a_system_port_of_its_own_machine_that_refuses_is_a_wrong_setting() {
    let nature = |text: &str| terminal_error_of(text).map(|found| found.nature);
    for text in [
        "ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=9): Max retries exceeded \
         (Caused by NewConnectionError(\"[Errno 111] Connection refused\"))",
        "curl: (7) Failed to connect to localhost port 7 after 0 ms: Connection refused",
        "dial tcp [::1]:1: connect: connection refused",
        "Error: connect ECONNREFUSED 127.0.0.1:9",
    ] {
        assert_eq!(nature(text), Some(Nature::Permanent), "{text}");
    }
    for text in [
        "ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=9200): Connection refused",
        "curl: (7) Failed to connect to db1 port 80 after 0 ms: Connection refused",
        "dial tcp 10.127.0.0:80: connect: connection refused",
        "Error: read ECONNRESET 127.0.0.1:443",
    ] {
        assert_eq!(nature(text), Some(Nature::Transient), "{text}");
    }
}

#[test]
fn colours_do_not_hide_words_and_are_not_quoted() {
    let text = "\u{1b}[31mValueError\u{1b}[0m: the value of x is not a number\n";
    let found = terminal_error_of(text).expect("an error");
    assert_eq!(found.line, "ValueError: the value of x is not a number");
    assert_eq!(found.quote, ": the value of x is not a number");
    assert_eq!(&text[found.range], found.quote);
    let plain = "\u{1b}[1;31mKeyError: 'x'\u{1b}[0m\n";
    let found = terminal_error_of(plain).expect("an error");
    assert_eq!((found.line.as_str(), found.quote.as_str()), ("KeyError: 'x'", "KeyError: 'x'"));
}

#[test]
fn any_text_is_read_without_a_panic() {
    for text in [
        "Traceback (most recent call last):",
        "Traceback (most recent call last):\n  x",
        "\u{fffd}\n\0\r\n'",
        "thread 'x' panicked at a:1:1:",
        "thread 'x' panicked at a:1:1:\n",
        "\x1b[31m\x1b]0;\r\r\n | + -",
    ] {
        let _ = terminal_error_of(text);
    }
}

#[test]
fn every_example_of_a_rule_is_decided_by_it() {
    let rules = Rules::built_in();
    let mut wrong = Vec::new();
    for rule in rules.all() {
        for example in &rule.examples {
            let found = terminal_error_of(example);
            let got = found.as_ref().map(|f| (f.kind, f.nature));
            if got != Some((rule.kind, rule.nature)) {
                wrong.push(format!("{}: `{example}` is {found:?}", rule.id));
            }
        }
        for other in &rule.unlike {
            let found = terminal_error_of(other).and_then(|f| f.rule);
            if found.as_deref() == Some(rule.id.as_str()) {
                wrong.push(format!("{}: decides `{other}`", rule.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
