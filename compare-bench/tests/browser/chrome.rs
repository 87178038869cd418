//! Chromium without a window, driven through the protocol of `WebDriver` by Debian's chromedriver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

const IS_LOADED: &str = "return location.protocol === 'file:' && document.readyState === 'complete';";

/// Whether it can be started, and if not, why.
pub(crate) fn installed() -> Result<(), String> {
    let output = Command::new("chromedriver").arg("--version").output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err("chromedriver is not installed (apt install chromium chromium-driver)".to_owned()),
    }
}

/// The tallest picture that the browser makes, in pixels.
const TALLEST: usize = 16_000;

/// Of the window, in pixels.
const HEIGHT: u32 = 900;

/// A browser with one window. Dropping it ends both programs.
pub(crate) struct Chrome {
    driver: Child,
    session: String,
    _profile: TempDir,
}

impl Chrome {
    pub(crate) fn start() -> Self {
        let mut driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let rest = line.split_once("started successfully on port ")?.1;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        let driver_at = format!("http://127.0.0.1:{}/session", port.expect("chromedriver names its port"));
        let profile = tempfile::tempdir().unwrap();
        let args = [
            "--headless=new".to_owned(),
            // There is nothing foreign in the page, and root cannot have the sandbox.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let answer = post(&driver_at, &wanted);
        let session = format!("{driver_at}/{}", answer["sessionId"].as_str().expect("a session"));
        Self { driver, session, _profile: profile }
    }

    /// From now on the window is so wide, and the user prefers that.
    pub(crate) fn as_if(&self, width: u32, medium: &str, scheme: &str) {
        let size = json!({ "width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        // Pictures have none, and are as wide as the window.
        self.devtools("Emulation.setScrollbarsHidden", &json!({ "hidden": true }));
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "media": medium, "features": features }));
    }

    /// Loads the page, also where it is open already. A large page that was loaded over itself was once
    /// looked at while half of it had been read, so an empty one comes between, and the whole of it is waited
    /// for.
    pub(crate) fn open(&self, page: &Path) {
        self.open_at(page, "");
    }

    /// The same at a place of the page: `#latency`.
    pub(crate) fn open_at(&self, page: &Path, place: &str) {
        self.command("url", &json!({ "url": "about:blank" }));
        self.command("url", &json!({ "url": format!("file://{}{place}", page.display()) }));
        self.wait_for(IS_LOADED);
    }

    /// Waits until this script says so.
    pub(crate) fn wait_for(&self, script: &str) {
        let began = Instant::now();
        while self.script(script, &json!([])) != json!(true) {
            assert!(began.elapsed() < Duration::from_mins(1), "in vain: {script}");
            sleep(Duration::from_millis(20));
        }
    }

    /// From now on pages run none. Those of the tests still do.
    pub(crate) fn without_scripts(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    }

    pub(crate) fn script(&self, script: &str, args: &Value) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": args }))
    }

    /// The whole page, also what is below the window. A page that is too tall for one picture gets several,
    /// whose names end in their numbers.
    pub(crate) fn screenshot(&self, file: &Path) {
        const SIZE: &str =
            "const page = document.documentElement; return [page.scrollWidth, page.scrollHeight];";
        let size = self.script(SIZE, &json!([]));
        let (width, height) = (size[0].as_u64().unwrap(), size[1].as_u64().unwrap());
        for (number, top) in (0..height).step_by(TALLEST).enumerate() {
            let left = (height - top).min(TALLEST as u64);
            let clip = json!({ "x": 0, "y": top, "width": width, "height": left, "scale": 1 });
            let name = file.file_stem().unwrap().display();
            let part = if number == 0 {
                file.to_owned()
            } else {
                file.with_file_name(format!("{name}-{number}.png"))
            };
            self.capture(&clip, &part);
        }
    }

    fn capture(&self, clip: &Value, file: &Path) {
        let shot =
            self.devtools("Page.captureScreenshot", &json!({ "captureBeyondViewport": true, "clip": clip }));
        fs::write(file, STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// What is seen of the page without scrolling.
    pub(crate) fn window(&self, width: u32, file: &Path) {
        self.capture(&json!({ "x": 0, "y": 0, "width": width, "height": HEIGHT, "scale": 1 }), file);
    }

    /// The first element that the selector finds, and a little around it.
    pub(crate) fn picture(&self, selector: &str, file: &Path) {
        const AROUND: &str = r"
            const box = document.querySelector(arguments[0]).getBoundingClientRect();
            return { x: box.x + scrollX - 16, y: box.y + scrollY - 16, width: box.width + 32, height: box.height + 32, scale: 1 };
        ";
        self.capture(&self.script(AROUND, &json!([selector])), file);
    }

    /// What was written to the console, and whatever was fetched that is not a file.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let console = self.command("se/log", &json!({ "type": "browser" }));
        let mut complaints: Vec<String> = console.as_array().unwrap().iter().map(Value::to_string).collect();
        let events = self.command("se/log", &json!({ "type": "performance" }));
        for event in events.as_array().unwrap() {
            let event: Value = serde_json::from_str(event["message"].as_str().unwrap()).unwrap();
            let (event, text) =
                (&event["message"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
            let (url, page) =
                (text(&event["params"]["request"]["url"]), text(&event["params"]["documentURL"]));
            // The browser's own first page fetches a lot from itself.
            let is_ours = event["method"] == "Network.requestWillBeSent" && page.starts_with("file:");
            if is_ours && !url.starts_with("file:") {
                complaints.push(format!("requested: {url}"));
            }
        }
        complaints
    }

    fn devtools(&self, method: &str, params: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": method, "params": params }))
    }

    fn command(&self, command: &str, body: &Value) -> Value {
        post(&format!("{}/{command}", self.session), body)
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        // Whatever it answers: the driver is killed next, and that ends a browser that did not listen.
        ureq::delete(&self.session).call().map(drop).unwrap_or_default();
        self.driver.kill().unwrap_or_default();
        self.driver.wait().map(drop).unwrap_or_default();
    }
}

fn post(url: &str, body: &Value) -> Value {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut answer = agent.post(url).send_json(body).unwrap();
    let status = answer.status();
    let mut answer: Value = answer.body_mut().read_json().unwrap();
    assert!(status.is_success(), "{url}: {answer}");
    answer["value"].take()
}
