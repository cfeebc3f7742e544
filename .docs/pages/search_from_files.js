// Search on pages that are opened from disk: browsers start no worker there, so a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.frame = frame.contentWindow
      window.addEventListener("message", event => {
        if (event.source === this.frame) this.dispatchEvent(new MessageEvent("message", {data: event.data}))
      })
      this.frame.document.open()
      this.frame.document.write(`<script>
        postMessage = (data) => parent.postMessage(data, "*")
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((loaded, failed) => {
          const script = document.createElement("script")
          Object.assign(script, {src: url, onload: loaded, onerror: failed})
          document.body.appendChild(script)
        })), Promise.resolve())
      <\/script><body><script src="${url}"><\/script></body>`)
      this.frame.document.close()
    }
    postMessage(data) {
      const send = () => this.frame.dispatchEvent(new MessageEvent("message", {data}))
      this.frame.document.readyState === "complete" ? send() : this.frame.addEventListener("load", send)
    }
    terminate() {}
  }
}
