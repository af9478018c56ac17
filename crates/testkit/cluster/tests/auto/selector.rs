//! Records the changes of the Service's selector.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use maglor_testkit::cluster::Kubectl;

/// The values of the selector, each as long as it lasts; the process ends with this.
#[derive(Debug)]
pub(crate) struct Watch {
    kubectl: Child,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    pub(crate) fn start(kubectl: &Kubectl) -> Self {
        let value = "jsonpath={.spec.selector.app}{\"\\n\"}";
        let get = [
            "get", "service", "details", "-n", "shop", "--watch", "-o", value,
        ];
        let mut kubectl = kubectl
            .command()
            .args(get)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(kubectl.stdout.take().unwrap()).lines();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut seen = shared.lock().unwrap();
                if seen.last() != Some(&line) {
                    seen.push(line);
                }
            }
        });
        Self { kubectl, seen }
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have terminated already.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}
