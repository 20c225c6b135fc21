// A core's way into the plugin's process: a connection, and memory that both sides see, which stays
// when a process dies and is shown to the next one. Owned by PjrtCore; used on its thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "common/status.h"
#include "worker/backend/pjrt/host_message.h"
#include "worker/backend/pjrt/plugin_host.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/process/shared_memory.h"

namespace ringmaster::pjrt {

class Lane {
 public:
  // `host` must outlive it. `stop`: of the job; from then on everything is CANCELLED, also what the
  // process is in the middle of, which ends with it.
  Lane(PluginHost& host, std::stop_token stop) : host_(host), stop_(std::move(stop)) {}

  // Makes room for at least so much, which loses what was in it; Connect shows it to the process.
  [[nodiscard]] Status Reserve(size_t bytes);
  [[nodiscard]] std::byte* memory() const { return memory_.data(); }
  [[nodiscard]] size_t memory_bytes() const { return memory_.bytes(); }
  // Connects, also again, where it has no connection. Before every request.
  [[nodiscard]] Status Connect();
  // Which one it has, from 1 on, or 0; programs are bound to one of them.
  [[nodiscard]] uint64_t connection() const { return process_ == nullptr ? 0 : connections_; }
  // Whether the connection broke in the middle of the last request: then Bury comes before any
  // other.
  [[nodiscard]] bool lost() const { return process_ != nullptr && lost_; }
  // As PluginHost::Bury; afterwards Connect makes another one.
  [[nodiscard]] Status Bury(const std::string& what);
  [[nodiscard]] size_t max_deaths() const { return host_.options().max_deaths; }

  // Errors of these are the plugin's own, or how its process ended, where the connection is lost.
  [[nodiscard]] StatusOr<BindReply> Bind(const BindRequest& request, int text, int weights);
  [[nodiscard]] Status Run(const RunRequest& request);
  void Release(uint32_t program);

 private:
  // `doing`: what it did not do in time, when it hangs: compile.
  [[nodiscard]] StatusOr<HostMessage> Ask(MessageKind kind, const std::string& body,
                                          std::span<const int> files, MessageKind expected,
                                          std::chrono::milliseconds limit, const char* doing);
  [[nodiscard]] Status Lose(const Status& why, std::chrono::milliseconds limit, const char* doing);
  [[nodiscard]] Status ShowMemory();

  PluginHost& host_;
  const std::stop_token stop_;
  SharedMemory memory_;
  bool shown_ = false;  // to the process that it is connected to
  std::shared_ptr<Subprocess> process_;
  OwnedFile socket_;
  uint64_t connections_ = 0;
  bool lost_ = false;
};

}  // namespace ringmaster::pjrt
