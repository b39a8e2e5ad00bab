//! What the launcher needs of a plan while the command runs.

use super::{Landlock, Plan, Tier};

impl Plan {
    /// The plan without what only the child needs, which is the most of it.
    pub(crate) fn lean(&self) -> Plan {
        let namespace = self.tier == Tier::Namespace;
        let landlock = self.landlock.as_ref().map(|landlock| Landlock {
            files: if namespace { Vec::new() } else { landlock.files.clone() },
            ports: landlock.ports.clone(),
            ..*landlock
        });
        Plan {
            schema: self.schema,
            tier: self.tier,
            profiles: self.profiles.clone(),
            user: self.user,
            namespaces: self.namespaces.clone(),
            mounts: Vec::new(),
            private: self.private.clone(),
            home: self.home.clone(),
            home_links: self.home_links.clone(),
            private_files: self.private_files.clone(),
            landlock,
            seccomp: Vec::new(),
            allowed_calls: None,
            environment: self.environment.clone(),
            limits: self.limits.clone(),
            guards: self.guards.clone(),
            guarded_trees: self.guarded_trees.clone(),
            strict: self.strict,
            opens_input: self.opens_input,
            overlay: self.overlay.clone(),
            gateway: self.gateway.clone(),
            bus: self.bus.clone(),
            network: self.network,
            capture: self.capture.clone(),
            publish: self.publish.clone(),
            sockets: self.sockets.clone(),
            machine: self.machine.clone(),
            workdir: self.workdir.clone(),
            degraded: self.degraded.clone(),
            warnings: self.warnings.clone(),
        }
    }
}
