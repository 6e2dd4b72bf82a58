#include "scenarios/audit/metrics_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace kvfence::audit {

MetricsServer::~MetricsServer() {
  if (socket_ >= 0) ::close(socket_);
}

std::optional<std::string> MetricsServer::open(int port) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  // The system calls take one type for the addresses of all families.
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (socket_ < 0 || ::bind(socket_, any, size) != 0 || ::listen(socket_, 16) != 0 ||
      ::getsockname(socket_, any, &size) != 0) {
    return "port " + std::to_string(port) + ": " + std::strerror(errno);
  }
  port_ = ntohs(address.sin_port);
  return std::nullopt;
}

int MetricsServer::next_peer() const {
  return socket_ < 0 ? -1 : ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
}

void MetricsServer::answer(int peer, std::string_view text) {
  const timeval patience{0, 100'000};
  ::setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  std::array<char, 4096> request;
  const ssize_t received = ::recv(peer, request.data(), request.size(), 0);
  const bool is_get = received >= 4 && std::string_view(request.data(), 4) == "GET ";
  std::string answer = is_get ? "HTTP/1.1 200 OK\r\n" : "HTTP/1.1 405 Method Not Allowed\r\n";
  if (!is_get) text = {};
  answer += "Content-Type: text/plain; version=0.0.4\r\nConnection: close\r\nContent-Length: ";
  answer += std::to_string(text.size()) + "\r\n\r\n";
  answer += text;
  std::string_view left = answer;
  while (!left.empty()) {
    const ssize_t sent = ::send(peer, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
  ::close(peer);
}

}  // namespace kvfence::audit
