// User objects: something of the program's that lives as long as graphs hold it; its destructor runs when the last
// reference goes, on the thread that lets go.
#include <map>
#include <mutex>

#include "sim/cuda/driver.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_lookup.h"

namespace tensor_fusion::sim::cuda {
namespace {

struct UserObject {
  static constexpr HandleKind kHandleKind = HandleKind::user_object;
  void* pointer = nullptr;
  CUhostFn destructor = nullptr;
  std::uint64_t references = 0;
  std::uint64_t handle_value = 0;
};
std::mutex mutex;
HandleTable<UserObject>& objects() {
  static auto* table = new HandleTable<UserObject>;
  return *table;
}

CUresult release(UserObject& object, std::uint64_t count) {
  {
    const std::lock_guard lock(mutex);
    if (count > object.references) return CUDA_ERROR_INVALID_VALUE;
    object.references -= count;
    if (object.references != 0) return CUDA_SUCCESS;
    objects().remove(object.handle_value);
  }
  object.destructor(object.pointer);
  return CUDA_SUCCESS;
}

CUresult find(const char* symbol, CUuserObject handle, unsigned count, std::shared_ptr<UserObject>& object) {
  TF_TRY(enter(symbol));
  object = objects().share(handle);
  return object && count != 0 && count <= 0x7fffffffU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

TF_API(cuUserObjectCreate, (CUuserObject * out, void* pointer, CUhostFn destructor, unsigned count, unsigned flags)) {
  TF_TRY(enter("cuUserObjectCreate"));
  constexpr unsigned kNoDestructorSync = 1;  // the only flag, and it has to be there
  if (out == nullptr || destructor == nullptr || count == 0 || flags != kNoDestructorSync)
    return CUDA_ERROR_INVALID_VALUE;
  auto object = std::make_shared<UserObject>();
  object->pointer = pointer;
  object->destructor = destructor;
  object->references = count;
  object->handle_value = objects().insert(object);
  *out = as_handle<CUuserObject>(object->handle_value);
  return CUDA_SUCCESS;
}
TF_API(cuUserObjectRetain, (CUuserObject handle, unsigned count)) {
  std::shared_ptr<UserObject> object;
  TF_TRY(find("cuUserObjectRetain", handle, count, object));
  const std::lock_guard lock(mutex);
  object->references += count;
  return CUDA_SUCCESS;
}
TF_API(cuUserObjectRelease, (CUuserObject handle, unsigned count)) {
  std::shared_ptr<UserObject> object;
  TF_TRY(find("cuUserObjectRelease", handle, count, object));
  return release(*object, count);
}
TF_API(cuGraphRetainUserObject, (CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags)) {
  std::shared_ptr<Graph> graph;
  std::shared_ptr<UserObject> object;
  TF_TRY(find_graph("cuGraphRetainUserObject", graph_handle, graph));
  TF_TRY(find("cuGraphRetainUserObject", handle, count, object));
  constexpr unsigned kMove = 1;  // the caller's references become the graph's
  if (flags > kMove) return CUDA_ERROR_INVALID_VALUE;
  if (flags != kMove) {
    const std::lock_guard lock(mutex);
    object->references += count;
  }
  graph->keep(handle, std::shared_ptr<void>(nullptr, [object, count](void*) { (void)release(*object, count); }));
  return CUDA_SUCCESS;
}
TF_API(cuGraphReleaseUserObject, (CUgraph graph_handle, CUuserObject handle, unsigned count)) {
  std::shared_ptr<Graph> graph;
  std::shared_ptr<UserObject> object;
  TF_TRY(find_graph("cuGraphReleaseUserObject", graph_handle, graph));
  TF_TRY(find("cuGraphReleaseUserObject", handle, count, object));
  return graph->let_go(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tensor_fusion::sim::cuda
