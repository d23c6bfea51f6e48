//! A scenario as it is edited: what is wrong with it, at which line, and its main values for a form.

use bentpipe_config::Problem;
use bentpipe_link::keys::{Otherwise, Values};
use bentpipe_link::queue;
use bentpipe_scenario::{Direction, Known, Queue, QueueLimit, Scenario, keys_to_toml, unsaid_name};
use bentpipe_study::Names;
use serde::{Deserialize, Serialize};

/// The longest text of a scenario.
pub(crate) const LONGEST: usize = 256 << 10;
/// The most flows that the form has fields of.
const FLOWS: usize = 100;
/// The most flows that a scenario may have here.
const MOST_FLOWS: i64 = 20_000;

/// A key and a value that are set over the text; an empty value takes the key out of it.
pub(crate) type Setting = (String, String);

/// What the text says, or what is wrong with it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Checked {
    problems: Vec<Said>,
    form: Option<Form>,
}

/// A problem, at its place.
#[derive(Debug, Serialize)]
pub(crate) struct Said {
    /// The line in the text, from 1; none where a setting is wrong.
    line: Option<usize>,
    column: usize,
    /// The key of the setting that is wrong.
    key: Option<String>,
    words: String,
}

/// The main values of a scenario.
#[derive(Debug, Serialize)]
struct Form {
    name: String,
    seed: u64,
    time_limit: String,
    links: Vec<LinkForm>,
    flows: Vec<FlowForm>,
    amounts: Vec<AmountForm>,
    /// How many `[[flows]]` have no fields in the form.
    more_amounts: usize,
    gateways: Vec<Switch>,
    peps: Vec<Switch>,
}

#[derive(Debug, Serialize)]
struct LinkForm {
    name: String,
    directions: [DirectionForm; 2],
}

/// Values as a scenario writes them; empty where there is none.
#[derive(Debug, Serialize)]
struct DirectionForm {
    /// The keys of its values begin so.
    key: String,
    from: String,
    to: String,
    rate: String,
    delay: String,
    packet_error_rate: String,
    queue: QueueForm,
}

/// A queue, as the keys of its table.
#[derive(Debug, Serialize)]
struct QueueForm {
    kind: String,
    /// Such as `750kB`, or `500 packets`.
    size: String,
    /// The keys beside.
    keys: String,
}

/// How much a `[[flows]]` of the text sends.
#[derive(Debug, Serialize)]
struct AmountForm {
    flow: String,
    /// The key that says it: in what it is measured.
    unit: &'static str,
    value: String,
}

#[derive(Debug, Serialize)]
struct FlowForm {
    name: String,
    control: Option<String>,
    /// A variant of the simulator, which names its control.
    variant: Option<String>,
}

#[derive(Debug, Serialize)]
struct Switch {
    name: String,
    about: String,
    enabled: bool,
}

/// Reads `text` with `settings` over it. Which controls there are in the lab is known to the kernel alone.
///
/// # Errors
/// All that is wrong.
pub(crate) fn read(text: &str, settings: &[Setting], lab: bool) -> Result<Scenario, Vec<Said>> {
    bounded(text).map_err(|words| vec![plain(words)])?;
    let names = Names::all();
    let known = if lab { Known::default() } else { names.known() };
    let settings: Vec<(&str, &str)> = { settings.iter() }
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let scenario = Scenario::parse_setting("scenario", text, &settings, known)
        .map_err(|problems| problems.into_iter().map(said).collect::<Vec<_>>())?;
    if let Some(file) = scenario.traffic.as_ref().and_then(|traffic| traffic.file()) {
        let words =
            format!("traffic from the file `{file}`, which is not here: expected a `model`");
        return Err(vec![plain(words)]);
    }
    Ok(scenario)
}

/// The form of what `text` says.
pub(crate) fn check(text: &str, settings: &[Setting], lab: bool) -> Checked {
    match read(text, settings, lab) {
        Ok(scenario) => Checked {
            problems: Vec::new(),
            form: Some(form(&scenario, amounts(text))),
        },
        Err(problems) => Checked {
            problems,
            form: None,
        },
    }
}

/// Refuses what would be too large to look at: a `count` makes many flows of a few letters.
fn bounded(text: &str) -> Result<(), String> {
    if text.len() > LONGEST {
        return Err(format!(
            "a text of {} B: expected at most {LONGEST} B",
            text.len()
        ));
    }
    // What is not TOML is said by who reads it next.
    let Ok(table) = text.parse::<toml::Table>() else {
        return Ok(());
    };
    let flows = table.get("flows").and_then(toml::Value::as_array);
    let counts = flows.into_iter().flatten().map(|flow| {
        let count = flow.get("count").and_then(toml::Value::as_integer);
        count.unwrap_or(1).max(1)
    });
    let all = counts.fold(0, i64::saturating_add);
    if all > MOST_FLOWS {
        return Err(format!("{all} flows: expected at most {MOST_FLOWS}"));
    }
    Ok(())
}

fn plain(words: String) -> Said {
    Said {
        line: None,
        column: 1,
        key: None,
        words,
    }
}

fn said(problem: Problem) -> Said {
    let key = problem.file.strip_prefix("set ").map(str::to_owned);
    let hint = problem
        .suggestion
        .map(|name| format!("; did you mean `{name}`?"));
    Said {
        line: key.is_none().then_some(problem.line),
        column: problem.column,
        key,
        words: format!(
            "{}: expected {}{}",
            problem.what,
            problem.expected,
            hint.unwrap_or_default()
        ),
    }
}

/// The keys that say how much a flow sends, of which it has one.
const AMOUNTS: [&str; 3] = ["bytes", "duration", "segments"];

/// The amounts that the text itself has, and how many flows have no field for theirs.
fn amounts(text: &str) -> (Vec<AmountForm>, usize) {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let flows = table.get("flows").and_then(toml::Value::as_array);
    let more = flows.map_or(0, |flows| flows.len().saturating_sub(FLOWS));
    let flows = flows.into_iter().flatten().take(FLOWS).enumerate();
    let amounts = flows.filter_map(|(index, flow)| {
        let name = flow.get("name").and_then(toml::Value::as_str);
        let (unit, value) = AMOUNTS
            .iter()
            .find_map(|&unit| Some((unit, flow.get(unit)?)))?;
        Some(AmountForm {
            flow: name.map_or_else(|| unsaid_name(index), str::to_owned),
            unit,
            value: plain_text(value),
        })
    });
    (amounts.collect(), more)
}

fn plain_text(value: &toml::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn form(scenario: &Scenario, (amounts, more_amounts): (Vec<AmountForm>, usize)) -> Form {
    let links = scenario.links.iter().map(|(name, link)| {
        let [a, b] = &link.ends;
        LinkForm {
            name: name.clone(),
            directions: [
                direction(format!("links.{name}"), [a, b], &link.forward),
                direction(format!("links.{name}.reverse"), [b, a], &link.reverse),
            ],
        }
    });
    let flows = scenario.flows.iter().take(FLOWS).map(|flow| FlowForm {
        name: flow.name.clone(),
        control: scenario.sender_control(flow).map(str::to_owned),
        variant: flow.variant.clone(),
    });
    let gateways = { scenario.gateways.iter() }.filter_map(|(name, gateway)| {
        let split = gateway.split.as_ref()?;
        let control = { split.config() }.sat.congestion.as_deref();
        Some(Switch {
            name: name.clone(),
            about: format!(
                "splits TCP, {} over the satellite",
                control.unwrap_or("cubic")
            ),
            enabled: gateway.enabled,
        })
    });
    let peps = scenario.peps.iter().map(|(name, pep)| Switch {
        name: name.clone(),
        about: format!("at {}, on {}", pep.node, pep.link),
        enabled: pep.enabled,
    });
    Form {
        name: scenario.name.clone(),
        seed: scenario.seed,
        time_limit: format!("{}s", scenario.time_limit.as_secs_f64()),
        links: links.collect(),
        flows: flows.collect(),
        amounts,
        more_amounts,
        gateways: gateways.collect(),
        peps: peps.collect(),
    }
}

fn direction(key: String, [from, to]: [&String; 2], direction: &Direction) -> DirectionForm {
    DirectionForm {
        key,
        from: from.clone(),
        to: to.clone(),
        rate: direction
            .rate
            .map_or(String::new(), |rate| rate.to_string()),
        delay: format!("{}ms", direction.delay.as_secs_f64() * 1e3),
        packet_error_rate: direction.channels.chance("packet_error_rate").to_string(),
        queue: queue_form(&direction.queue),
    }
}

fn queue_form(queue: &Queue) -> QueueForm {
    let (size, in_bytes) = match queue.limit() {
        QueueLimit::Packets(packets) => (format!("{packets} packets"), false),
        QueueLimit::Bytes(bytes) => (bytes.to_string(), true),
    };
    QueueForm {
        kind: queue.spec().name.to_owned(),
        size,
        keys: keys_to_toml(queue.values(), in_bytes),
    }
}

/// A kind of queue to choose.
#[derive(Debug, Serialize)]
pub(crate) struct QueueKind {
    name: &'static str,
    about: &'static str,
    /// Examples of the keys that it must have beside its size, which is in packets.
    keys: String,
}

/// Kinds of queue to choose from.
pub(crate) fn queues() -> Vec<QueueKind> {
    let kinds = queue::registry::<()>().iter();
    let kinds = kinds.map(|entry| {
        let keys = { entry.spec.keys.iter() }.filter(|key| key.otherwise == Otherwise::Required);
        let keys: Vec<_> = keys.copied().collect();
        QueueKind {
            name: entry.spec.name,
            about: entry.spec.summary,
            keys: keys_to_toml(&Values::examples(&keys), false),
        }
    });
    kinds.collect()
}

/// A congestion control to choose.
#[derive(Debug, Serialize)]
pub(crate) struct Control {
    name: &'static str,
    about: &'static str,
}

/// Congestion controls to choose from.
pub(crate) fn controls() -> Vec<Control> {
    let controls = bentpipe_cc::REGISTRY.iter();
    let controls = controls.map(|control| Control {
        name: control.kernel.unwrap_or(control.name),
        about: control.summary,
    });
    controls.collect()
}

/// A scenario to be checked.
#[derive(Debug, Deserialize)]
pub(crate) struct Ask {
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) settings: Vec<Setting>,
    #[serde(default)]
    pub(crate) lab: bool,
}
