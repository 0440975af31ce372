//! Real agent programs judge failures through the real server. Only the model is a script of ours,
//! on loopback.
//!
//! `scripts/mcp-lab` installs the programs; see `real_clients.rs`.

use crate::mcp::waiting;
use crate::real_clients::{lab, path_with};
use crate::support::model::{Conversation, ScriptedModel, fingerprints, judge_by_words};
use crate::support::{Call, TORC, Test, text};
use serde_json::{Value, json};
use std::path::Path;

/// Nothing but loopback can be reached: whatever an agent wants from elsewhere meets a closed port.
fn offline(call: Call) -> Call {
    let dead = "http://127.0.0.1:9";
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"]
        .into_iter()
        .fold(call, |call, name| call.env(name, dead))
        .env("NO_PROXY", "127.0.0.1,localhost")
        .env("no_proxy", "127.0.0.1,localhost")
}

fn with_claude(call: Call, model: &ScriptedModel) -> Call {
    call.env("ANTHROPIC_BASE_URL", &model.url).env("ANTHROPIC_API_KEY", "dummy")
}

/// Everything that rounds of agents left behind, for the message of a failed test.
fn rounds(test: &Test) -> String {
    let dirs = std::fs::read_dir(test.path("output/ai_recovery")).into_iter().flatten().flatten();
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir.path()).into_iter().flatten().flatten());
    files
        .map(|file| {
            format!(
                "{}:\n{}\n",
                file.path().display(),
                std::fs::read_to_string(file.path()).unwrap_or_default()
            )
        })
        .collect()
}

/// `torc recover --ai-recovery` with this agent judges the two failures of [`waiting`], and nothing
/// was offered to the model but our two tools and what is `harmless`.
fn recovers(agent: &str, harmless: &[&str], set_up: impl Fn(&Test, Call, &ScriptedModel) -> Call) {
    let Some(lab) = lab() else { return };
    if !lab.join("npm/node_modules/.bin").join(agent).exists() {
        eprintln!("SKIPPED: {agent} is not installed; `scripts/mcp-lab --all` installs it");
        return;
    }
    let test = waiting();
    let model = ScriptedModel::start(judge_by_words);
    let call =
        test.torc(["recover", "1", "--ai-recovery", "--ai-agent", agent, "--ai-timeout", "100s"]);
    let done = set_up(&test, offline(call.env("PATH", path_with(&lab))), &model).done();
    let offered = model.offered();
    let context = || format!("{}\n{}\n{offered:?}", done.stderr, rounds(&test));
    assert_eq!(done.code, Some(0), "{}", context());
    assert!(done.stderr.contains("1 to be tried again, 1 failed for good"), "{}", context());
    assert_eq!(
        test.statuses(),
        ["flaky ready", "broken failed", "after canceled", "fine completed"]
    );
    let ours = ["list_pending_failed_jobs", "classify_and_resolve_failures"];
    for tool in offered.iter().flatten() {
        assert!(
            ours.iter().any(|own| tool.ends_with(own)) || harmless.contains(&tool.as_str()),
            "{tool}: {offered:?}"
        );
    }
    assert!(
        offered.iter().any(|tools| ours.iter().all(|own| tools.iter().any(|t| t.ends_with(own)))),
        "{offered:?}"
    );
    let history = test.torc(["-f", "json", "jobs", "classify", "--history"]).success().json();
    let row = &history["classifications"][0];
    assert_eq!((text(&row["agent"]), text(&row["reason"])), (agent, "judged by a script"));
}

#[test]
fn the_real_claude_code_recovers_a_workflow() {
    recovers("claude", &[], |_, call, model| with_claude(call, model));
}

#[test]
fn the_real_codex_recovers_a_workflow() {
    // Of MCP servers there is ours only, which has no resources; and there is no user to ask.
    let harmless = [
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "request_user_input",
    ];
    recovers("codex", &harmless, |test, call, model| {
        let settings = format!(
            "model = \"gpt-5\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
             base_url = \"{}/v1\"\nenv_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n",
            model.url
        );
        test.write(".codex/config.toml", &settings);
        call.env("SCRIPTED_KEY", "dummy")
    });
}

#[test]
fn the_real_gemini_recovers_a_workflow() {
    recovers("gemini", &[], |test, call, model| {
        let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}},
                              "privacy": {"usageStatisticsEnabled": false},
                              // With a model of its own choice it first asks another one which to
                              // take.
                              "model": {"name": "gemini-2.5-flash"}});
        test.write(".gemini/settings.json", &settings.to_string());
        call.env("GEMINI_API_KEY", "dummy").env("GOOGLE_GEMINI_BASE_URL", &model.url)
    });
}

#[test]
fn the_real_copilot_recovers_a_workflow() {
    recovers("copilot", &[], |_, call, model| {
        call.env("COPILOT_OFFLINE", "true")
            .env("COPILOT_PROVIDER_TYPE", "anthropic")
            .env("COPILOT_PROVIDER_BASE_URL", &model.url)
            .env("COPILOT_PROVIDER_API_KEY", "dummy")
            .env("COPILOT_MODEL", "claude-sonnet-4")
    });
}

#[test]
fn the_real_opencode_recovers_a_workflow() {
    recovers("opencode", &[], |test, call, model| {
        let options = json!({"baseURL": format!("{}/v1", model.url), "apiKey": "dummy"});
        let provider = json!({"npm": "@ai-sdk/anthropic", "options": options, "models": {"m1": {"name": "m1"}}});
        let settings = json!({"model": "scripted/m1", "provider": {"scripted": provider}});
        test.write(".config/opencode/opencode.json", &settings.to_string());
        call.env("OPENCODE_DISABLE_MODELS_FETCH", "1")
    });
}

#[test]
fn the_real_claude_code_takes_the_printed_registration() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    let model = ScriptedModel::start(judge_by_words);
    let snippet = test.torc(["mcp", "config", "claude"]).success().stdout;
    test.write("mcp.json", &snippet);
    let allowed = "mcp__torc__list_pending_failed_jobs,mcp__torc__classify_and_resolve_failures";
    let call = test.shell(&format!(
        "echo 'Recover workflow 1' | claude --print --bare --no-session-persistence --mcp-config mcp.json \
         --strict-mcp-config --tools '' --allowedTools {allowed}"
    ));
    with_claude(offline(call.env("PATH", path_with(&lab))), &model)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .success()
        .says("RECOVERED");
    assert_eq!(test.statuses()[..2], ["flaky ready", "broken failed"]);
    assert!(
        model.offered().iter().flatten().any(|name| name == "mcp__torc__create_workflow"),
        "an assistant's tools"
    );
}

/// Looks, asks the site's own server about the storage, and retries what that explains.
fn judge_with_the_site(conversation: &Conversation) -> Option<(&'static str, Value)> {
    match conversation.results.as_slice() {
        [_] => {
            Some(("was_service_down", json!({"service": "storage", "time": "2026-03-01T10:15"})))
        }
        [listed, site] => {
            let was_down = site["down"] == true;
            let verdict = |print: &Value| {
                let is_storage = print["template"].as_str().is_some_and(|t| t.contains("store"));
                let action = if is_storage && was_down { "retry" } else { "fail" };
                json!({"fingerprint": print["id"], "action": action, "reason": "by the site's word", "confidence": 0.9,
                       "evidence": [format!("storage was down until {}", site["to"].as_str().unwrap_or("?"))]})
            };
            let verdicts: Vec<Value> = fingerprints(listed).map(verdict).collect();
            Some((
                "classify_and_resolve_failures",
                json!({"workflow_id": 1, "classifications": verdicts}),
            ))
        }
        _ => judge_by_words(conversation),
    }
}

#[test]
fn the_real_claude_code_asks_a_server_of_the_site() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    let model = ScriptedModel::start(judge_with_the_site);
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-mcp-server/agents.json");
    let call = test.torc([
        "recover",
        "1",
        "--ai-recovery",
        "--ai-agent",
        "claude-with-site",
        "--ai-timeout",
        "100s",
    ]);
    let call = offline(call.env("PATH", path_with(&lab))).env("TORC_AGENTS", example);
    let done = with_claude(call, &model).done();
    let context = || format!("{}\n{}\n{:?}", done.stderr, rounds(&test), model.offered());
    assert_eq!(done.code, Some(0), "{}", context());
    assert_eq!(
        test.statuses(),
        ["flaky ready", "broken failed", "after canceled", "fine completed"]
    );
    let offered = model.offered();
    let mut tools = offered.first().cloned().unwrap_or_default();
    tools.sort();
    assert_eq!(
        tools,
        [
            "mcp__site__was_service_down",
            "mcp__torc__classify_and_resolve_failures",
            "mcp__torc__list_pending_failed_jobs"
        ]
    );
    let history = test.torc(["-f", "json", "jobs", "classify", "--history"]).success().json();
    let row = &history["classifications"][0];
    assert_eq!(
        row["evidence"],
        json!(["storage was down until 2026-03-01T11:30:00"]),
        "what the site's server said"
    );
}

/// Takes the skill that it was told of, opens an example that the skill names, and runs it. Each step needs what the
/// step before it brought: an agent that hides the skill or does not load it gets nowhere.
fn follow_the_skill(conversation: &Conversation) -> Option<(&'static str, Value)> {
    const EXAMPLE: &str = ".claude/skills/torc/references/examples/02-chain.yaml";
    let knows = |text: &str| conversation.request.contains(text);
    let bash =
        |command: String| ("Bash", json!({"command": command, "description": "by the skill"}));
    match conversation.results.len() {
        0 if knows("workflows of shell jobs with Torc") => {
            Some(("Skill", json!({"skill": "torc"})))
        }
        1 if knows("references/examples/02-chain.yaml") => Some(bash(format!("cat {EXAMPLE}"))),
        2 if knows("name: chain") => Some(bash(format!("torc run {EXAMPLE}"))),
        3 if knows("3 of 3 jobs succeeded") => Some(bash("torc -f json why three".into())),
        _ => None,
    }
}

#[test]
fn the_real_claude_code_works_by_the_skill_folder() {
    let Some(lab) = lab() else { return };
    let test = Test::new();
    test.torc(["mcp", "skill", ".claude/skills/torc"]).success();
    let model = ScriptedModel::start(follow_the_skill);
    let call = test.shell(
        "echo 'Run the chain example of Torc' | claude --print --no-session-persistence \
         --allowedTools 'Skill,Bash(torc:*),Bash(cat:*)'",
    );
    let programs = Path::new(TORC).parent().expect("a directory").display().to_string();
    let path = format!("{programs}:{}", path_with(&lab));
    let done = with_claude(offline(call.env("PATH", path)), &model)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .done();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(test.statuses(), ["one completed", "two completed", "three completed"]);
}
