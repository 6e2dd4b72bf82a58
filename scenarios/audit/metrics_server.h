#pragma once

/// Answers GET requests on a port with one text, as Prometheus scrapes it. It has no thread: its
/// owner calls serve() now and then.

#include <optional>
#include <string>
#include <string_view>

namespace kvfence::audit {

class MetricsServer {
 public:
  MetricsServer() = default;
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// Listens on all addresses; port 0 is a free one. Returns an error message, if any.
  std::optional<std::string> open(int port);
  int port() const { return port_; }

  /// Answers waiting clients. One that sends or receives nothing for 100 ms is closed. Calls
  /// make_text() if there is a client.
  template <class MakeText>
  void serve(MakeText&& make_text) {
    for (int peer = next_peer(); peer >= 0; peer = next_peer()) answer(peer, make_text());
  }

 private:
  /// -1: no client waits.
  int next_peer() const;
  static void answer(int peer, std::string_view text);

  int socket_ = -1;
  int port_ = 0;
};

}  // namespace kvfence::audit
