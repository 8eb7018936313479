#!/bin/sh
# Turns a bare sandbox machine into an existing server with users. Run as root on the machine before the cluster's first run.
set -eu
export DEBIAN_FRONTEND=noninteractive

# Software chosen by the site: another time daemon than the cluster's, and automatic upgrades.
apt-get -q update
apt-get -q install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io ntpsec unattended-upgrades
sed -i '/^pool /d' /etc/ntpsec/ntp.conf
printf '# time server of the site\nserver clock.site.example iburst\n' >>/etc/ntpsec/ntp.conf
printf 'Unattended-Upgrade::Mail "admins@site.example";\n' >/etc/apt/apt.conf.d/52site-upgrades
printf 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n' >/etc/apt/apt.conf.d/20auto-upgrades

# A user with the uid that the next new user would get.
useradd --create-home --uid 1001 --shell /bin/bash alice
echo 'three years of work' >/home/alice/thesis.tex
chown alice:alice /home/alice/thesis.tex
chmod 0600 /home/alice/thesis.tex

# The training user already exists, with its own SSH files.
useradd --create-home --uid 1500 --shell /bin/bash muster
install -d -m 0700 -o muster -g muster /home/muster/.ssh
ssh-keygen -q -t ed25519 -N '' -C laptop -f /home/muster/.ssh/id_ed25519
sed 's/^/from="198.51.100.7" /' /home/muster/.ssh/id_ed25519.pub >/home/muster/.ssh/authorized_keys
printf '# to the archive\nHost archive\n    HostName archive.site.example\n    User keeper\n' >/home/muster/.ssh/config
printf 'archive.site.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILivedInLivedInLivedInLivedInLivedInLivedInLiv\n' \
    >/home/muster/.ssh/known_hosts
chown -R muster:muster /home/muster/.ssh

# Names, limits and settings with comments.
cat >>/etc/hosts <<'END'

# the storage, see the wiki
198.51.100.20	nas nas.site.example	# moved in March
198.51.100.21 printer
END
echo 'net.core.somaxconn = 8192  # the portal' >/etc/sysctl.d/60-site.conf
echo '@students hard nproc 4000' >/etc/security/limits.d/60-site.conf
printf 'MaxAuthTries 4\nBanner /etc/issue.net\n' >/etc/ssh/sshd_config.d/60-site.conf
systemctl restart ssh

# An enabled firewall with allow and deny rules.
ufw allow 22/tcp comment 'site: ssh' >/dev/null
ufw allow 8443/tcp comment 'site: the portal' >/dev/null
ufw allow from 198.51.100.0/24 to any port 9100 proto tcp comment 'site: metrics' >/dev/null
ufw deny from 198.51.100.66 comment 'site: the scanner of the other floor' >/dev/null
ufw --force enable >/dev/null
nft -f - <<'END'
table inet site {
    chain input {
        type filter hook input priority -5; policy accept;
        tcp dport 5555 drop comment "site: never again"
    }
}
END

# The setup of a container engine for a published port: a bridge, a container behind it, DNAT, and own chains.
sysctl -q -w net.ipv4.ip_forward=1
ip link add docker0 type bridge
ip address add 172.17.0.1/16 dev docker0
ip link set docker0 up
ip netns add portal
ip link add veth0 type veth peer name eth0 netns portal
ip link set veth0 master docker0 up
ip -n portal address add 172.17.0.2/16 dev eth0
ip -n portal link set eth0 up
ip -n portal route add default via 172.17.0.1
iptables -t nat -N DOCKER
iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
iptables -t nat -A DOCKER ! -i docker0 -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
iptables -N DOCKER
iptables -N DOCKER-USER
iptables -I FORWARD -o docker0 -j DOCKER
iptables -I FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -I FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables -I FORWARD -j DOCKER-USER
iptables -A DOCKER-USER -j RETURN
iptables -A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp --dport 80 -j ACCEPT
systemd-run --quiet --collect --unit=site-portal ip netns exec portal python3 -m http.server 80 --directory /usr/share/doc
