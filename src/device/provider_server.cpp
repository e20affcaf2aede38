#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/provider.h"
#include "device/provider_wire.h"

namespace tensor_fusion::device {
namespace {

int log_fd = -1;  // a C callback has no other way to know its connection

bool send_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool reply(int fd, const ProviderHeader& request, AccelResult result, const void* data, std::size_t size) {
  const ProviderHeader header{request.call, static_cast<std::int32_t>(result), request.id, size};
  return send_all(fd, &header, sizeof header) && (size == 0 || send_all(fd, data, size));
}

void on_log(const char* level, const char* message) {
  std::string text(level ? level : "");
  text += '\0';
  text.append(message ? message : "", message ? ::strnlen(message, 4096) : 0);
  const ProviderHeader header{static_cast<std::uint32_t>(ProviderCall::kLog), 0, 0, text.size()};
  static_cast<void>(send_all(log_fd, &header, sizeof header) && send_all(log_fd, text.data(), text.size()));
}

class Server {
 public:
  Server(const char* library, int fd) : library_(library), fd_(fd) {}

  int run() {
    ProviderHeader request;
    while (receive_all(fd_, &request, sizeof request)) {
      if (request.size > kMaxProviderMessage) return 1;
      std::vector<char> body(request.size);
      if (!receive_all(fd_, body.data(), body.size())) return 1;
      if (!answer(request, body)) return 1;
    }
    if (provider_.shutdown) provider_.shutdown();
    return 0;
  }

 private:
  bool answer(const ProviderHeader& request, const std::vector<char>& body) {
    switch (static_cast<ProviderCall>(request.call)) {
      case ProviderCall::kStart:
        return start(request);
      case ProviderCall::kDevices:
        return list<ExtendedDeviceInfo>(request, MAX_TOPOLOGY_DEVICES, provider_.all_devices);
      case ProviderCall::kProcesses:
        return list<ProcessInformation>(request, MAX_PROCESSES, provider_.process_information);
      case ProviderCall::kTopology: {
        auto topology = std::make_unique<ExtendedDeviceTopology>();
        const AccelResult result = provider_.topology(topology.get());
        return reply(fd_, request, result, topology.get(), result == ACCEL_SUCCESS ? sizeof *topology : 0);
      }
      case ProviderCall::kMetrics:
        return metrics(request, body);
      case ProviderCall::kEvents:
        if (!provider_.extension) break;
        return list<AccelEvent>(request, 64, provider_.extension->pollEvents);
      case ProviderCall::kDeviceFiles:
        return device_files(request, body);
      case ProviderCall::kLog:
        break;
    }
    return reply(fd_, request, ACCEL_ERROR_NOT_SUPPORTED, nullptr, 0);
  }

  bool start(const ProviderHeader& request) {
    if (library_[0] == '\0') {
      provider_ = nvidia_provider();
    } else if (auto loaded = load_provider(library_)) {
      provider_ = *loaded;
    } else {
      const std::string& why = loaded.error().message;
      return reply(fd_, request, ACCEL_ERROR_NOT_FOUND, why.data(), why.size());
    }
    log_fd = fd_;
    if (provider_.register_log) provider_.register_log(on_log);
    const AccelResult result = provider_.init();
    std::string text = provider_.name;
    if (result != ACCEL_SUCCESS) {
      const char* trouble = provider_.trouble ? provider_.trouble() : "";
      text = *trouble ? trouble : "the provider " + provider_.name + " does not start: " + word_of(result);
    }
    return reply(fd_, request, result, text.data(), text.size());
  }

  template <typename Item>
  bool list(const ProviderHeader& request, std::size_t max, AccelResult (*function)(Item*, std::size_t, std::size_t*)) {
    if (!function) return reply(fd_, request, ACCEL_ERROR_NOT_SUPPORTED, nullptr, 0);
    const auto items = std::make_unique<Item[]>(max);
    std::size_t count = 0;
    const AccelResult result = function(items.get(), max, &count);
    if (result != ACCEL_SUCCESS || count > max) count = 0;
    return reply(fd_, request, result, items.get(), count * sizeof(Item));
  }

  bool metrics(const ProviderHeader& request, const std::vector<char>& body) {
    constexpr std::size_t kUuid = 64;
    const std::size_t count = std::min<std::size_t>(body.size() / kUuid, MAX_TOPOLOGY_DEVICES);
    std::vector<std::string> uuids;
    std::vector<const char*> pointers;
    for (std::size_t i = 0; i < count; ++i) uuids.emplace_back(&body[i * kUuid], ::strnlen(&body[i * kUuid], kUuid));
    for (const std::string& uuid : uuids) pointers.push_back(uuid.c_str());
    std::vector<DeviceMetrics> metrics(count);
    const AccelResult result = provider_.device_metrics(pointers.data(), count, metrics.data());
    return reply(fd_, request, result, metrics.data(), result == ACCEL_SUCCESS ? count * sizeof(DeviceMetrics) : 0);
  }

  bool device_files(const ProviderHeader& request, const std::vector<char>& body) {
    if (!provider_.extension) return reply(fd_, request, ACCEL_ERROR_NOT_SUPPORTED, nullptr, 0);
    const std::string uuid(body.data(), ::strnlen(body.data(), body.size()));
    constexpr std::size_t kMaxFiles = 64;
    std::vector<MountPath> files(kMaxFiles);
    std::size_t count = 0;
    const AccelResult result = provider_.extension->getDeviceFiles(uuid.c_str(), files.data(), kMaxFiles, &count);
    if (result != ACCEL_SUCCESS || count > kMaxFiles) count = 0;
    return reply(fd_, request, result, files.data(), count * sizeof(MountPath));
  }

  const char* library_;
  int fd_;
  Provider provider_;
};

}  // namespace

int serve_provider(const char* library, int fd) { return Server(library, fd).run(); }

const char* word_of(ProviderCall call) {
  switch (call) {
    case ProviderCall::kStart:
      return "AccelInit";
    case ProviderCall::kDevices:
      return "AccelGetAllDevices";
    case ProviderCall::kTopology:
      return "AccelGetAllDevicesTopology";
    case ProviderCall::kProcesses:
      return "AccelGetProcessInformation";
    case ProviderCall::kMetrics:
      return "AccelGetDeviceMetrics";
    case ProviderCall::kEvents:
      return "pollEvents";
    case ProviderCall::kDeviceFiles:
      return "getDeviceFiles";
    case ProviderCall::kLog:
      return "log";
  }
  return "an unknown call";
}

}  // namespace tensor_fusion::device
