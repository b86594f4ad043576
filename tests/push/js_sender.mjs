// The push sender of @a2a-js/sdk: sends an event of each task to the webhooks that are registered.
import { readFileSync } from "node:fs";
import { DefaultPushNotificationSender, InMemoryPushNotificationStore, ServerCallContext } from "@a2a-js/sdk/server";

console.info = console.error;
const question = JSON.parse(readFileSync(0, "utf8"));
const store = new InMemoryPushNotificationStore();
const context = new ServerCallContext({ requestedVersion: "1.0" });
for (const [task, config] of question.registrations) {
  await store.save(task, context, { tenant: "", id: "", taskId: task, token: "", authentication: undefined, ...config });
}
const sender = new DefaultPushNotificationSender(store);
for (const task of question.tasks) {
  const value = { taskId: task, contextId: "c", status: { state: 2, message: undefined, timestamp: undefined }, metadata: undefined };
  await sender.send({ payload: { $case: "statusUpdate", value } }, context);
}
console.log(JSON.stringify("sent"));
