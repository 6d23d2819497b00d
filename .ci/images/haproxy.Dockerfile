# Imitates haproxy:3.0.
FROM localhost/debian13-team
STOPSIGNAL SIGUSR1
USER haproxy
ENTRYPOINT ["haproxy", "-W", "-db"]
CMD ["-f", "/usr/local/etc/haproxy/haproxy.cfg"]
